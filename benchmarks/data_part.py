"""A part of a data set's training data, for runs that would take too long on all of it."""

from pathlib import Path

import numpy as np

from ..core.storage.files import replacing
from ..core.tasks.datasets import load_raw
from ..core.tasks.spec import TaskSpec
from ..core.tasks.splits import stratified_split


def write_part(task: str, data: str, samples: int, folder: Path) -> Path:
    """Write an .npz file of this many training samples, all classes alike, and all test samples.

    The choice is the same at every call.

    Parameters
    ----------
    task, data : str
        The data set, as ``task`` and ``data.path`` of the run config.
    samples : int
        How many; all if there are fewer.
    folder : Path
        Where the file goes.
    """
    raw = load_raw(TaskSpec(task=task, path=data))
    share = min(1.0, samples / len(raw.y_train))
    kept, _ = stratified_split(raw.y_train, share, np.random.default_rng(0))
    path = folder / f"{Path(data).stem or task}-{len(kept)}.npz"
    arrays = {
        "x_train": raw.x_train[kept],
        "y_train": raw.y_train[kept],
        "x_test": raw.x_test,
        "y_test": raw.y_test,
    }
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path
