from collections.abc import Callable

import numpy as np
import pytest
import torch
from forager.core.learning import fisher
from forager.core.learning.fisher import fisher_diagonal
from torch import Tensor, nn
from torch.nn import functional


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int = 3) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(2))


def tokens(count: int, length: int) -> Tensor:
    return torch.randint(8, (count, length), generator=torch.Generator().manual_seed(3))


def one_by_one(model: nn.Module, inputs: Tensor, targets: Tensor) -> np.ndarray:  # type: ignore[type-arg]
    """Return the definition: square each sample's gradient, then average."""
    trained = [each for each in model.parameters() if each.requires_grad]
    total = torch.zeros(sum(each.numel() for each in trained))
    for i in range(len(inputs)):
        loss = functional.cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1])
        gradients = torch.autograd.grad(loss, trained)
        total += torch.cat([gradient.flatten() for gradient in gradients]).square()
    return (total / len(inputs)).numpy()


class Residual(nn.Module):
    """Batch norm, an activation that writes in place, and a sum, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2)
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(x)), inplace=True)
        x = functional.relu(x + self.group(self.body(x)), inplace=True)
        return self.head(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


class Text(nn.Module):
    """Embedding with padding, a linear layer at every place, layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 5, padding_idx=0)
        self.mix = nn.Linear(5, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.mix(self.embedding(x)))).mean(dim=1))  # type: ignore[no-any-return]


class Twice(nn.Module):
    """A layer that is used twice: its gradient is a sum, whose square has mixed terms."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))  # type: ignore[no-any-return]


class Own(nn.Module):
    """Parameters of its own, which no layer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.scale)  # type: ignore[no-any-return]


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    model[2].weight = model[0].weight
    return model


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].weight.requires_grad_(False)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor, bool]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)),
        numbers(7, 6),
        True,
    ),
    "residual": (Residual, numbers(7, 2, 9, 9), True),
    "one place": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Flatten(), nn.Linear(4, 3)),
        numbers(7, 2, 1, 1),
        True,
    ),
    "two places": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(8, 3)),
        numbers(7, 3, 5),
        True,
    ),
    "signal": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 5, padding=2), nn.Flatten(), nn.Linear(48, 3)),
        numbers(7, 3, 12),
        True,
    ),
    "text": (Text, tokens(7, 10), True),
    "frozen": (frozen, numbers(7, 6), True),
    "twice": (Twice, numbers(7, 6), False),
    "own": (Own, numbers(7, 6), False),
    "tied": (tied, numbers(7, 6), False),
    "padded otherwise": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(100, 3)
        ),
        numbers(7, 2, 5, 5),
        False,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_mean_of_squared_gradients_of_single_samples(name: str) -> None:
    build, inputs, by_layers = MODELS[name]
    model, targets = seeded(build).eval(), labels(7)
    result = fisher_diagonal(model, functional.cross_entropy, inputs, targets)
    np.testing.assert_allclose(result, one_by_one(model, inputs, targets), rtol=1e-4, atol=1e-9)
    totals = {each: torch.zeros_like(value) for each, value in model.named_parameters()}
    layers = fisher._layers(model, totals)
    found = layers is not None and fisher._add_by_layers(
        layers, model, functional.cross_entropy, inputs, targets
    )
    assert found == by_layers


@pytest.mark.parametrize("name", ["residual", "twice"])
def test_batches_and_parts_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, inputs, _ = MODELS[name]
    model, targets = seeded(build), labels(7)
    whole = fisher_diagonal(model, functional.cross_entropy, inputs, targets)
    monkeypatch.setattr("forager.core.learning.layer_squares._NUMBERS_AT_ONCE", 2000)
    monkeypatch.setattr("forager.core.learning.fisher._NUMBERS_AT_ONCE", 200)
    parts = fisher_diagonal(model, functional.cross_entropy, inputs, targets, batch_size=3)
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reduction_of_the_loss_does_not_matter(reduction: str) -> None:
    model, inputs, targets = seeded(MODELS["mlp"][0]), numbers(7, 6), labels(7)
    loss = nn.CrossEntropyLoss(reduction=reduction)
    result = fisher_diagonal(model, loss, inputs, targets)
    np.testing.assert_allclose(result, one_by_one(model, inputs, targets), rtol=1e-4, atol=1e-9)


def test_is_not_the_square_of_the_mean_gradient() -> None:
    model = seeded(lambda: nn.Linear(2, 1, bias=False))
    opposed = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    result = fisher_diagonal(model, lambda y, t: (y - t).sum(), opposed, torch.zeros(2, 1))
    assert result.tolist() == [1.0, 4.0]


def test_takes_arrays_and_returns_a_flat_one_in_model_order() -> None:
    model = seeded(MODELS["mlp"][0])
    inputs, targets = numbers(7, 6), labels(7)
    result = fisher_diagonal(model, functional.cross_entropy, inputs.numpy(), targets.numpy())
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert result.shape == (sum(each.numel() for each in model.parameters()),)
    head_only = seeded(MODELS["mlp"][0])
    for each in list(head_only.parameters())[:2]:
        each.requires_grad_(False)
    last = fisher_diagonal(head_only, functional.cross_entropy, inputs, targets)
    np.testing.assert_allclose(result[-last.size :], last, rtol=1e-5)


def test_leaves_the_model_as_it_was() -> None:
    model = seeded(Residual)
    model.body.eval()  # type: ignore[operator, union-attr]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    with torch.no_grad():
        fisher_diagonal(model, functional.cross_entropy, numbers(5, 2, 9, 9), labels(5))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_bad_arguments_are_refused() -> None:
    model = seeded(MODELS["mlp"][0])
    with pytest.raises(ValueError, match="inputs, targets"):
        fisher_diagonal(model, functional.cross_entropy, numbers(3, 6), labels(4))
    with pytest.raises(ValueError, match="inputs, targets"):
        fisher_diagonal(model, functional.cross_entropy, numbers(0, 6), labels(0))
    with pytest.raises(ValueError, match="batch_size"):
        fisher_diagonal(model, functional.cross_entropy, numbers(3, 6), labels(3), batch_size=0)
    for each in model.parameters():
        each.requires_grad_(False)
    with pytest.raises(ValueError, match="trainable"):
        fisher_diagonal(model, functional.cross_entropy, numbers(3, 6), labels(3))
