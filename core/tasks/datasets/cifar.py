"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32 x 32 pixels (Krizhevsky, 2009)."""

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TaskError, one_line
from ..spec import TaskSpec
from . import npz
from .raw import RawData
from .storage import Arrays, cache_folder, cached_arrays


def load(spec: TaskSpec) -> RawData:
    """Images from the file ``path``, from a folder with torchvision's files, or a download."""
    name, num_classes = spec.task.upper(), int(spec.task.removeprefix("cifar"))
    place = Path(spec.path).expanduser()
    if spec.path and not place.is_dir():
        raw = npz.load(spec)
        return RawData(raw.x_train, raw.y_train, raw.x_test, raw.y_test, num_classes=num_classes)
    if spec.path:
        arrays = _through_torchvision(name, place, download=False)
    else:
        folder = cache_folder(spec.cache_dir)
        arrays = cached_arrays(
            folder, f"{name.lower()}-1", lambda: _through_torchvision(name, folder, download=True)
        )
    return RawData(**arrays, num_classes=num_classes)  # type: ignore[arg-type]


def _through_torchvision(name: str, root: Path, download: bool) -> Arrays:
    from ..torchvision_compat import torchvision  # slow to import, and only needed once per machine

    try:
        data_set = getattr(torchvision().datasets, name)
        train, test = (data_set(str(root), train=part, download=download) for part in (True, False))
    except (OSError, RuntimeError) as error:
        raise TaskError(
            f"{name} cannot be loaded from {root} ({one_line(error)}): connect to the network and "
            "leave path empty, or set path to an .npz file with x_train y_train x_test y_test"
        ) from error
    return {**_arrays(train, "train"), **_arrays(test, "test")}


def _arrays(part: Any, suffix: str) -> Arrays:
    return {f"x_{suffix}": part.data, f"y_{suffix}": np.array(part.targets, dtype=np.int64)}
