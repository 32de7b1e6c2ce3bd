"""Any data in one ``.npz`` file: ``x_train y_train x_test y_test [user_train user_test]``."""

from pathlib import Path

import numpy as np

from ..errors import TaskError, invalid
from ..spec import TaskSpec
from .raw import RawData
from .storage import UNREADABLE, Arrays

_TRAIN, _TEST = ("x_train", "y_train"), ("x_test", "y_test")
_USERS = ("user_train", "user_test")
_TABLES = (".csv", ".parquet", ".json", ".jsonl", ".arrow")  # read by task 'hf:<path>'


def load(spec: TaskSpec) -> RawData:
    """Read the file that ``path`` names; a server without a pool needs only ``x_test y_test``."""
    if not spec.path:
        raise invalid("path", spec.path, f"the .npz file of task {spec.task!r}")
    return _pools(find_file(spec.path), _TEST, _TRAIN, _USERS)


def load_device_file(path: str) -> RawData:
    """Read what a device holds; ``x_test y_test`` may be missing and are then empty."""
    return _pools(find_file(path), _TRAIN, _TEST)


def _pools(
    path: Path, needed: tuple[str, str], other: tuple[str, str], more: tuple[str, ...] = ()
) -> RawData:
    """Read a pool that must be there, and another that may be missing and is then empty."""
    arrays = read_arrays(path, needed, (*other, *more))
    if (other[0] in arrays) != (other[1] in arrays):
        raise TaskError(f"{path}: has only one of {' and '.join(other)}; give both or none")
    for there, missing in zip(needed, other, strict=True):
        arrays.setdefault(missing, arrays[there][:0])
    return RawData(**arrays)  # type: ignore[arg-type]


def find_file(path: str) -> Path:
    """File itself, or the only ``.npz`` file of a folder."""
    place = Path(path).expanduser()
    if place.is_dir():
        files = sorted(place.glob("*.npz"))
        if len(files) != 1:
            raise TaskError(f"{place}: holds {len(files)} .npz files; name one of them")
        return files[0]
    if not place.is_file():
        raise TaskError(f"{place}: there is no such file; an .npz file is needed")
    if place.suffix.lower() in _TABLES:
        raise TaskError(
            f"{place}: is not an .npz file; for a table set task = 'hf:{place}' and "
            "data.target-column, without data.path"
        )
    return place


def read_arrays(path: Path, required: tuple[str, ...], optional: tuple[str, ...]) -> Arrays:
    """Named arrays of a file, without unpickling anything."""
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("it is a single array")
        with file:
            present = set(file.files)
            arrays = {name: file[name] for name in (*required, *optional) if name in present}
    except UNREADABLE as error:
        raise TaskError(f"{path}: cannot be read as an .npz file of arrays ({error})") from error
    missing = [name for name in required if name not in arrays]
    if missing:
        held = ", ".join(sorted(present)) or "nothing"
        raise TaskError(f"{path}: lacks {', '.join(missing)}; it holds {held}")
    return arrays
