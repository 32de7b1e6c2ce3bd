import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from forager.core.tasks.errors import TaskError
from forager.core.tasks.models import MODELS, build_model, linear_head, split_at_head
from torch import Tensor, nn

IMAGES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 20, 44), (2, 4, 9)]
FITTING = [
    *[(name, shape) for name in ("softmax", "mlp", "dnn") for shape in ((5,), (9, 16), (3, 8, 8))],
    *[(name, shape) for name in ("cnn", "small-cnn", "lenet") for shape in IMAGES],
    *[("cnn1d", shape) for shape in ((9, 128), (3, 100), (1, 4))],
    *[("resnet18", shape) for shape in ((1, 28, 28), (3, 32, 32))],
    ("resnet50", (3, 32, 32)),
    ("frozen:efficientnet-lite0", (1280,)),
    ("frozen:resnet50", (2048,)),
]


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def batch(shape: tuple[int, ...], n: int = 2) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "shape"), FITTING)
def test_a_model_reads_its_inputs_and_trains(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, shape, 7)
    output = model(batch(shape))
    assert output.shape == (2, 7)
    output.square().sum().backward()
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize(("name", "shape"), FITTING)
def test_head_of_body_is_the_model(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, shape, 7).eval()
    body, head = split_at_head(model)
    inner = body(batch(shape))
    assert inner.shape == (2, head.in_features)
    assert torch.equal(head(inner), model(batch(shape)))
    assert dict(model.named_modules())[linear_head(model)] is head


def test_vgg16_runs_on_small_images_with_one_channel() -> None:
    model = build_model("vgg16", (1, 32, 32), 7).eval()
    body, head = split_at_head(model)
    with torch.no_grad():
        assert torch.equal(head(body(batch((1, 32, 32)))), model(batch((1, 32, 32))))
    assert linear_head(model) == "classifier.6"
    assert head.out_features == 7


def test_every_listed_model_is_covered() -> None:
    elsewhere = {"vgg16", "segmenter", "char-gru"}  # see test_problems
    assert set(MODELS) == {name for name, _ in FITTING if ":" not in name} | elsewhere


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn", (3, 32, 32), 10, 3_353_034),
        ("cnn", (3, 32, 32), 100, 3_537_444),
        ("small-cnn", (1, 28, 28), 10, 206_922),
        ("lenet", (1, 28, 28), 10, 25_010),
        ("dnn", (9, 100), 5, 90_605),
        ("softmax", (60,), 10, 610),
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("resnet18", (1, 224, 224), 1000, 11_689_512 - 2 * 64 * 49),
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, ...], classes: int, count: int) -> None:
    assert parameters(build_model(name, shape, classes)) == count


@pytest.mark.parametrize("name", ["cnn", "lenet"])
def test_no_activation_between_the_linear_layers(name: str) -> None:
    layers = list(build_model(name, (1, 28, 28), 10).children())
    assert [type(layer) for layer in layers[-3:]] == [nn.Flatten, nn.Linear, nn.Linear]
    assert sum(isinstance(layer, nn.ReLU) for layer in layers) == 2


def test_hidden_sets_the_width_of_the_mlp() -> None:
    assert parameters(build_model("mlp", (4,), 3, hidden=5)) == 4 * 5 + 5 + 5 * 3 + 3


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18"])
def test_weights_follow_the_seed_and_nothing_else(name: str) -> None:
    before = torch.get_rng_state()
    first = build_model(name, (1, 28, 28), 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(99)
        second = build_model(name, (1, 28, 28), 10, seed=3)
    other = build_model(name, (1, 28, 28), 10, seed=4)
    one, same, different = (list(m.parameters()) for m in (first, second, other))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], different[0])


def test_threads_that_build_at_once_get_the_seeds_weights() -> None:
    def weights(seed: int) -> Tensor:
        model = build_model("mlp", (50,), 10, seed=seed)
        return nn.utils.parameters_to_vector(model.parameters())

    expected = [weights(seed) for seed in range(40)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            built = list(pool.map(weights, range(40)))
    finally:
        sys.setswitchinterval(interval)
    assert all(torch.equal(a, b) for a, b in zip(built, expected, strict=True))


@pytest.mark.parametrize("name", ["softmax", "mlp", "dnn", "cnn", "small-cnn", "lenet"])
def test_small_models_are_plain_sequences(name: str) -> None:
    model = build_model(name, (1, 28, 28), 10)
    assert type(model) is nn.Sequential
    assert all(type(layer).__module__.startswith("torch.nn") for layer in model)


# ---- What is refused


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("cnn", (784,), r"model = 'cnn' reads images .* shape \(784,\)"),
        ("cnn", (1, 3, 8), "at least 4 x 4"),
        ("lenet", (9, 128), "images"),
        ("small-cnn", (1, 3, 3), "at least 4 x 4"),
        ("cnn1d", (1, 28, 28), "series"),
        ("cnn1d", (9, 3), "at least 4 steps"),
        ("resnet18", (512,), "images"),
        ("vgg16", (1, 28, 28), "at least 32 x 32"),
        ("frozen:resnet18", (3, 32, 32), r"\(512,\) features of backbone 'resnet18'"),
        ("frozen:resnet81", (512,), "model = 'frozen:resnet81'.*did you mean 'resnet18'"),
        ("cnm", (3, 32, 32), "model = 'cnm' is not known.*softmax.*frozen:<back.*mean 'cnn'"),
        ("", (4,), "is not known"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], expected: str
) -> None:
    with pytest.raises(TaskError, match=expected):
        build_model(name, shape, 10)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(TaskError, match=r"data.num-classes = 0"):
        build_model("softmax", (4,), 0)
    with pytest.raises(TaskError, match=r"net.hidden = 0"):
        build_model("mlp", (4,), 2, hidden=0)
    for shape in ((), (0,), (3, -1, 4)):
        with pytest.raises(TaskError, match="input_shape"):
            build_model("softmax", shape, 2)


# ---- The user's own

OWN_MODELS = """
import torch
from torch import nn

number = 3

class Tanh(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(input_shape[0])
        self.frozen_norm = nn.BatchNorm1d(input_shape[0]).eval()
        self.out = nn.Linear(input_shape[0], num_classes)

    def forward(self, x):
        return self.out(torch.tanh(self.frozen_norm(self.norm(x))))

class WithSoftmax(Tanh):
    def forward(self, x):
        return super().forward(x).softmax(1)

def bare(input_shape, num_classes):
    return nn.Linear(input_shape[0], num_classes)

def wrong_size(input_shape, num_classes):
    return nn.Linear(input_shape[0], num_classes + 1)

def wrong_input(input_shape, num_classes):
    return nn.Linear(input_shape[0] + 1, num_classes)

def no_module(input_shape, num_classes):
    return "text"

def pair(input_shape, num_classes):
    return nn.LSTM(input_shape[0], num_classes)

def broken(input_shape, num_classes):
    raise KeyError("inside")
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_models.py").write_text(OWN_MODELS)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return "own_models"


def test_own_model_is_seeded_and_unharmed_by_the_trial(own_module: str) -> None:
    model = build_model(f"{own_module}:Tanh", (4,), 3, seed=5)
    again = build_model(f"{own_module}:Tanh", (4,), 3, seed=5)
    assert torch.equal(model.get_parameter("out.weight"), again.get_parameter("out.weight"))
    assert model.training
    assert model.get_submodule("norm").training
    assert not model.get_submodule("frozen_norm").training
    assert int(model.get_buffer("norm.num_batches_tracked")) == 0
    assert linear_head(model) == "out"


def test_own_bare_layer_gets_a_named_head(own_module: str) -> None:
    model = build_model(f"{own_module}:bare", (4,), 3)
    assert linear_head(model) == "0"
    assert model(batch((4,))).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("own_missing:Tanh", "cannot be imported: No module named 'own_missing'"),
        ("own_broken:Tanh", "cannot be imported: ZeroDivisionError"),
        ("own_models:Absent", "has no attribute 'Absent'"),
        ("own_models:number", "not callable but int"),
        ("own_models:no_module", "returned str"),
        ("own_models:wrong_size", r"gave \(2, 4\) instead of outputs of shape \(2, 3\)"),
        ("own_models:wrong_input", r"batch of shape \(2, 4\) raised RuntimeError"),
        ("own_models:pair", "gave tuple"),
        ("own_models:broken", "failed: KeyError"),
        ("own_models:", "is not allowed: use 'module:attribute'"),
        (":Tanh", "is not allowed: use 'module:attribute'"),
    ],
)
def test_own_model_faults_are_named(own_module: str, name: str, expected: str) -> None:
    with pytest.raises(TaskError, match=expected) as caught:
        build_model(name, (4,), 3)
    assert f"model = {name!r}" in str(caught.value)
    assert "callable(input_shape, num_classes)" in str(caught.value)


# ---- The head


def test_a_model_without_a_linear_head_is_refused() -> None:
    with pytest.raises(TaskError, match=r"last layer is Softmax '1'.*torch.nn.Linear"):
        linear_head(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)))
    with pytest.raises(TaskError, match="bare"):
        linear_head(nn.Linear(4, 3))


def test_what_is_computed_after_the_head_is_noticed(own_module: str) -> None:
    body, _ = split_at_head(build_model(f"{own_module}:WithSoftmax", (4,), 3))
    with pytest.raises(TaskError, match="not the output of its last layer"):
        body(batch((4,)))


def test_the_split_leaves_no_hook_behind_and_passes_gradients() -> None:
    model = build_model("resnet18", (3, 32, 32), 4)
    body, head = split_at_head(model)
    head(body(batch((3, 32, 32)))).sum().backward()
    assert not head._forward_hooks
    gradient = model.get_parameter("conv1.weight").grad
    assert gradient is not None
    assert bool(gradient.any())
