"""Files of a stream: their samples, or only the labels of these; and which have been read."""

import logging
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.npz import read_arrays
from ..errors import SayableError, invalid, one_line, optional_packages
from .arrivals import fitted

KINDS = (".npz", ".npy", ".png", ".jpg", ".jpeg", ".bmp")
"""How the names of files end that may hold samples."""

Shape = tuple[int, ...]


def samples_in(
    path: Path, numbers: dict[str, int], input_shape: Shape
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the samples and labels of a file; parameters and errors as for :func:`labels_in`."""
    if path.suffix.lower() == ".npz":
        arrays = read_arrays(path, ("x", "y"), ())
        x, y = fitted(arrays["x"], input_shape), arrays["y"]
        if y.shape != (len(x),) or y.dtype.kind not in "iu":
            raise ValueError(f"y must hold one whole number for each of {len(x)} samples")
        return x, y.astype(np.int64)
    number = _class_of(path, numbers)
    is_array = path.suffix.lower() == ".npy"
    array = np.load(path, allow_pickle=False) if is_array else _image(path, input_shape)
    x = _one_or_several(array, input_shape)
    return x, np.full(len(x), number, dtype=np.int64)


def labels_in(path: Path, numbers: dict[str, int], input_shape: Shape) -> NDArray[np.int64]:
    """Return the label of every sample of a file, or raise one of ``UNREADABLE``."""
    if path.suffix.lower() == ".npz":
        labels = read_arrays(path, ("y",), ())["y"]
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError("y must hold whole numbers")
        usable = (labels >= 0) & (labels < len(numbers))
        return labels[usable].astype(np.int64)
    number, count = _class_of(path, numbers), 1
    if path.suffix.lower() == ".npy":
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        count = 1 if math.prod(shape) == math.prod(input_shape) else shape[0]
    return np.full(count, number, dtype=np.int64)


def _class_of(path: Path, numbers: dict[str, int]) -> int:
    if path.parent.name not in numbers:
        raise ValueError(f"its folder must be named for one of {', '.join(numbers)}")
    return numbers[path.parent.name]


def _one_or_several(array: NDArray[Any], input_shape: Shape) -> NDArray[np.float32]:
    """Turn an array into samples: it is one, or else several."""
    try:
        return fitted(array[None], input_shape)
    except ValueError as misfit:
        try:
            return fitted(array, input_shape)
        except ValueError:
            raise misfit from None


def _image(path: Path, input_shape: Shape) -> NDArray[np.uint8]:
    """One image, height by width, by channels if the task has colours."""
    with optional_packages(str(path)):
        from PIL import Image

    coloured = len(input_shape) == 3 and input_shape[0] > 1
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB" if coloured else "L"))
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise ValueError(f"not a whole image: {one_line(error)}") from error


_log = logging.getLogger("forager")
_ALLOWED = '"keep", "delete" or "move:<folder>"'


@dataclass(frozen=True)
class AfterReading:
    """Keep files, delete them, or move them to a folder."""

    deletes: bool = False
    folder: Path | None = None

    @classmethod
    def of(cls, text: object, origin: Path) -> "AfterReading":
        """Return what a node config asks for; an error that says what is allowed."""
        if text in ("keep", "delete"):
            return cls(deletes=text == "delete")
        kind, _, name = str(text).partition(":")
        if kind != "move" or not name.strip():
            raise SayableError(f"node config: {invalid('stream-read', text, _ALLOWED)}")
        folder = Path(name.strip()).expanduser()
        if folder.resolve().is_relative_to(origin.resolve()):
            allowed = f"a folder that is not inside stream-path = {str(origin)!r}"
            raise SayableError(f"node config: {invalid('stream-read', text, allowed)}")
        return cls(folder=folder)

    @property
    def keeps(self) -> bool:
        """Whether files stay where they are."""
        return not self.deletes and self.folder is None

    def apply(self, path: Path, origin: Path) -> bool:
        """Delete or move a file; return whether it is gone. Failures are logged."""
        try:
            if self.folder is not None:
                target = _free(self.folder / path.relative_to(origin))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
            elif self.deletes:
                path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: was read, but cannot be removed: %s", path, one_line(error))
        return not path.exists()


def _free(path: Path) -> Path:
    """Return a name that no file has."""
    number, free = 0, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
