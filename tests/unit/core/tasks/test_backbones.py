import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from forager.core.tasks import backbones
from forager.core.tasks.backbones import BACKBONES, Backbone, feature_size, features
from forager.core.tasks.errors import TaskError
from forager.core.tasks.models import build_model
from forager.core.tasks.torchvision_compat import torchvision
from torch import Tensor, nn

LITE = "efficientnet-lite0"


class Counting(nn.Module):
    """A backbone with two features, the first and last channel's means, that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.mean((2, 3))[:, [0, 2]]


class VggClassifier(nn.Module):
    """The part of VGG16 that the backbone changes."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Sequential(*(nn.Identity() for _ in range(6)))
        with torch.random.fork_rng(devices=[]):
            self.classifier.append(nn.Linear(4096, 1000))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.classifier(x.mean((1, 2, 3))[:, None].expand(-1, 4096))
        return output


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    network = Counting()
    backbone = Backbone(2, "1", lambda: network, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.25))
    monkeypatch.setitem(BACKBONES, "counting", backbone)
    yield network
    backbones._network.cache_clear()


@pytest.fixture
def torch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    checkpoints = tmp_path / "home" / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    yield checkpoints
    backbones._network.cache_clear()


def images(n: int, channels: int = 3, side: int = 8, seed: int = 0) -> Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(seed))


def test_sizes() -> None:
    sizes = {name: feature_size(name) for name in BACKBONES}
    assert sizes == {LITE: 1280, "resnet18": 512, "resnet50": 2048, "vgg16": 4096}


def test_unknown_backbone_names_the_closest() -> None:
    with pytest.raises(TaskError, match=r"'resnet-18'.*vgg16.*did you mean 'resnet18'"):
        feature_size("resnet-18")


# ---- EfficientNet-Lite0, whose weights come with a package


def test_lite0_features_come_from_its_pretrained_network(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    x = images(3, side=32)
    result = features(LITE, x, str(tmp_path))
    assert result.shape == (3, 1280)
    assert result.dtype == torch.float32
    assert not result.requires_grad
    assert torch.equal(torch.get_rng_state(), state)

    pixels = nn.functional.interpolate(x, size=(128, 128), mode="bilinear", align_corners=False)
    network = backbones._network(LITE)
    assert not network.training
    with torch.no_grad():
        expected = network((pixels * 255 - 127) / 128)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    # Trained batch-norm statistics, not those of a fresh network.
    assert not torch.equal(network.get_buffer("_bn1.running_var"), torch.ones(1280))


def test_lite0_repeats_a_single_channel(tmp_path: Path) -> None:
    grey = images(1, channels=1)
    one = features(LITE, grey, str(tmp_path))
    three = features(LITE, grey.repeat(1, 3, 1, 1), str(tmp_path))
    torch.testing.assert_close(one, three)


def test_a_network_is_loaded_once_per_process() -> None:
    assert backbones._network(LITE) is backbones._network(LITE)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(TaskError, match=r"pip install 'forager-fl\[backbone\]'"):
        BACKBONES[LITE].load()


# ---- torchvision's networks, whose weights are downloaded


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vgg16"])
def test_without_a_network_the_error_says_what_to_do(
    name: str, torch_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(TaskError, match=f"'{name}'.*no network.*{torch_home}.*efficientnet-lite0"):
        features(name, images(1), str(tmp_path / "cache"))


def test_weights_that_are_already_on_disk_are_used(torch_home: Path, tmp_path: Path) -> None:
    network = build_model("resnet18", (3, 32, 32), 1000)
    torch.save(network.state_dict(), torch_home / "resnet18-f37072fd.pth")
    x = images(2)
    result = features("resnet18", x, str(tmp_path / "cache"))
    assert result.shape == (2, 512)

    network.set_submodule("fc", nn.Identity())
    pixels = nn.functional.interpolate(x, size=(128, 128), mode="bilinear", align_corners=False)
    normalise = torchvision().transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        torch.testing.assert_close(result, network.eval()(normalise(pixels)), rtol=1e-3, atol=1e-3)


def test_only_the_last_layer_of_vgg16_is_taken_out(
    torch_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = torchvision().models
    network = VggClassifier()
    weights = models.get_model_weights("vgg16").IMAGENET1K_V1
    torch.save(network.state_dict(), torch_home / Path(weights.url).name)
    monkeypatch.setattr(models, "get_model", lambda name: VggClassifier())
    assert features("vgg16", images(2), str(tmp_path / "cache")).shape == (2, 4096)


# ---- Cache and checks, on a tiny backbone


def test_features_are_computed_once(counting: Counting, tmp_path: Path) -> None:
    x = images(3)
    first = features("counting", x, str(tmp_path / "new" / "cache"))
    second = features("counting", x.clone(), str(tmp_path / "new" / "cache"))
    assert counting.calls == 1
    assert torch.equal(first, second)
    expected = (x.mean((2, 3))[:, [0, 2]] - 0.5) / torch.tensor([0.5, 0.25])
    torch.testing.assert_close(first, expected, rtol=1e-4, atol=1e-4)


def test_other_images_shapes_and_versions_are_computed_apart(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(2)
    features("counting", x, str(tmp_path))
    features("counting", x.flip(0), str(tmp_path))
    features("counting", x.reshape(2, 3, 4, 16), str(tmp_path))
    assert counting.calls == 3
    newer = Backbone(2, "2", lambda: counting)
    monkeypatch.setitem(BACKBONES, "counting", newer)
    features("counting", x, str(tmp_path))
    assert counting.calls == 4
    assert len(list(tmp_path.iterdir())) == 4


def test_all_batches_are_joined_in_order(counting: Counting, tmp_path: Path) -> None:
    n = 2 * backbones.BATCH + 1
    x = images(n)
    result = features("counting", x, str(tmp_path))
    assert counting.calls == 3
    for row in (0, backbones.BATCH, n - 1):
        alone = features("counting", x[row : row + 1], str(tmp_path))
        torch.testing.assert_close(result[row : row + 1], alone)


def test_no_images_no_features(counting: Counting, tmp_path: Path) -> None:
    assert features("counting", images(0), str(tmp_path)).shape == (0, 2)
    assert features("counting", images(0), str(tmp_path)).shape == (0, 2)


@pytest.mark.parametrize("damage", ["truncated", "empty"])
def test_a_damaged_cache_file_is_computed_again(
    counting: Counting, tmp_path: Path, damage: str
) -> None:
    x = images(3)
    first = features("counting", x, str(tmp_path))
    (path,) = tmp_path.iterdir()
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.write_bytes(b"")
    for _ in range(2):
        assert torch.equal(features("counting", x, str(tmp_path)), first)
    assert counting.calls == 2


def test_a_failed_write_leaves_nothing_behind(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    assert len(features("counting", images(1), str(tmp_path))) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.zeros(2, 1280), r"shape \(2, 1280\)"),
        (torch.zeros(2, 8, 8, 3), r"shape \(2, 8, 8, 3\)"),
        (torch.full((1, 3, 4, 4), 255.0), r"in \[0, 1\]; these lie in \[255, 255\]"),
        (torch.full((1, 3, 4, 4), torch.nan), r"in \[0, 1\]"),
        (-torch.ones(1, 1, 4, 4), r"in \[0, 1\]"),
    ],
)
def test_what_is_no_image_is_refused(
    counting: Counting, tmp_path: Path, x: Tensor, expected: str
) -> None:
    with pytest.raises(TaskError, match=expected):
        features("counting", x, str(tmp_path))
