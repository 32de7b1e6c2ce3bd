"""A model in the form that trains fastest computes the same."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.fused_model import fused_model
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer, train_one
from forager.core.tasks import Split
from torch import nn

SETTINGS = TrainSettings(2, 0, 8, 0.05, 0.9, 0.01)
PLAIN = Plain(read_config({}))


@pytest.fixture(autouse=True)
def one_thread():
    """Let torch sum in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(8, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.Flatten(),
        nn.Linear(150, 3),
    )


def jobs(model: nn.Module) -> list[Job]:
    generator = torch.Generator().manual_seed(1)
    arrays = read_arrays(model)
    return [
        Job(
            arrays,
            Split(
                torch.randn(count, 3, 8, 8, generator=generator),
                torch.randint(0, 3, (count,), generator=generator),
            ),
            seed,
        )
        for seed, count in enumerate([9, 20])
    ]


def test_names_and_arrays_stay_and_so_does_the_model_itself() -> None:
    model = network()
    quick = fused_model(model)
    assert isinstance(quick, nn.Sequential)
    assert [type(layer) for layer in quick[0]] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
    assert [type(layer) for layer in quick[3:5]] == [nn.MaxPool2d, nn.ReLU]
    assert type(model[0][1]) is nn.ReLU
    assert model[1].weight.is_contiguous()
    before, after = read_arrays(model), read_arrays(quick)
    assert list(before) == list(after)
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("shape", [(6, 2, 8, 8), (3, 1, 2, 6), (2, 2, 7, 8), (2, 2, 8, 5)])
def test_pooling_first_changes_no_value_and_no_gradient(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    quick = fused_model(nn.Sequential(nn.Conv2d(1, 1, 1), *plain))[1:]
    x = torch.randn(shape, requires_grad=True)
    expected, found = plain(x), quick(x)
    assert torch.equal(found, expected)
    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (expected, found)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("mode", ["serial", "threads"])
def test_training_gives_what_the_plain_form_gives(mode: str) -> None:
    outcomes = Trainer(network(), mode, threads=2).train(jobs(network()), SETTINGS, PLAIN)
    for job, outcome in zip(jobs(network()), outcomes, strict=True):
        expected = train_one(network(), job, SETTINGS, PLAIN)
        assert outcome.loss == pytest.approx(expected.loss, rel=1e-5)
        for name in expected.arrays:
            assert outcome.arrays[name].flags.c_contiguous
            np.testing.assert_allclose(outcome.arrays[name], expected.arrays[name], atol=1e-5)


def test_threads_give_what_one_after_the_other_gives_to_the_last_bit() -> None:
    ways = [
        Trainer(network(), mode, threads=2).train(jobs(network()), SETTINGS, PLAIN)
        for mode in ("serial", "threads")
    ]
    for one, other in zip(*ways, strict=True):
        assert one.loss == other.loss
        assert all(np.array_equal(one.arrays[n], other.arrays[n]) for n in one.arrays)


def test_a_frozen_convolution_stays_as_it_is_and_can_be_trained_around() -> None:
    model = network()
    model[1].requires_grad_(False)
    assert fused_model(model) is model
    Trainer(model, "serial").train(jobs(model), SETTINGS, PLAIN)


def test_a_layer_that_somebody_looks_at_keeps_its_place() -> None:
    model = network()
    model[0][1].register_forward_hook(lambda layer, inputs, output: None)
    assert fused_model(model) is model


class Peeking(nn.Module):
    """Asks for a layer by number."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features[:2](x).mean((2, 3))  # type: ignore[no-any-return]


def test_layers_of_another_module_keep_their_places() -> None:
    model = Peeking()
    assert fused_model(model) is model
