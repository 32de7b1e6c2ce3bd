"""The labels in a file of a stream, without its samples: enough to say how fast labels come."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..datasets.npz import read_arrays


def labels_in(
    path: Path, numbers: dict[str, int], input_shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the label of every sample of a file.

    An ``.npz`` file is asked for its ``y``, an ``.npy`` file for the shape in its header; an image
    is one sample. What cannot be read raises one of ``UNREADABLE``.

    Parameters
    ----------
    path : Path
        The file.
    numbers : dict
        Number of the class by the name of a folder.
    input_shape : tuple of int
        Shape of one sample of the task.

    Examples
    --------
    >>> labels_in(Path("incoming/cat/1.png"), {"dog": 0, "cat": 1}, (1, 8, 8)).tolist()
    [1]
    """
    if path.suffix.lower() == ".npz":
        labels = read_arrays(path, ("y",), ())["y"]
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError("y must hold whole numbers")
        usable = (labels >= 0) & (labels < len(numbers))
        return labels[usable].astype(np.int64)
    if path.parent.name not in numbers:
        raise ValueError(f"its folder must be named for one of {', '.join(numbers)}")
    count = 1
    if path.suffix.lower() == ".npy":
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        count = 1 if math.prod(shape) == math.prod(input_shape) else shape[0]
    return np.full(count, numbers[path.parent.name], dtype=np.int64)
