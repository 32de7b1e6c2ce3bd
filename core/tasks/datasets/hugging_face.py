"""Tables and images as Hugging Face's ``datasets`` and ``flwr-datasets`` keep them.

``task = 'hf:<name>'`` reads a data set by its name on the hub (``hf:user/name`` or, with a
configuration, ``hf:user/name:config``), or what is here: a folder that ``Dataset.save_to_disk``
wrote (Arrow), or one with such a folder per split; a ``.csv``, ``.parquet`` or ``.json`` file, or a
folder of them; a folder with images in one sub-folder per class. Devices name the same kinds of
place by ``data-path`` in their node config.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError, invalid, one_line
from ..spec import TaskSpec
from ..splits import generator, hold_out
from .raw import RawData

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

TEST_SHARE = 0.2  # held out where the data have no test split
_TABLES = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".jsonl": "json"}
_IMAGES = (".png", ".jpg", ".jpeg")
_ARROW = ("state.json", "dataset_dict.json")
_TARGETS = ("label", "labels", "target", "y", "fine_label", "character", "digit")
_TRAIN, _TEST = ("train", "training"), ("test", "validation", "valid")


def reads(path: str) -> bool:
    """Return whether a device's path is of a kind that is read here, and not an ``.npz`` file."""
    place = Path(path).expanduser()
    if place.is_file():
        return place.suffix in _TABLES
    return place.is_dir() and not any(place.glob("*.npz"))


def load(spec: TaskSpec) -> RawData:
    """Read the data that ``hf:`` names; without a test split a seeded fifth is held out."""
    found = _opened(spec.task.removeprefix("hf:"), spec)
    train, test = _splits(found, spec.task)
    columns = _Columns(train, spec, test)
    users, user_test = columns.users(train), None
    if test is None:
        kept, held = hold_out(len(train), TEST_SHARE, generator(spec.seed, "hugging-face"))
        train, test = train.select(kept), train.select(held)
        users = None if users is None else users[kept]
    else:
        user_test = columns.users(test)
    return RawData(
        columns.inputs(train),
        columns.targets(train),
        columns.inputs(test),
        columns.targets(test),
        user_train=users,
        user_test=user_test,
        columns=tuple(columns.names),
    )


def load_device(path: str, spec: TaskSpec) -> RawData:
    """Read what a device holds; test samples only if it has a test split."""
    train, test = _splits(_opened(path, spec), path)
    columns = _Columns(train, spec, test)
    x, y = columns.inputs(train), columns.targets(train)
    if test is None:
        return RawData(x, y, x[:0], y[:0])
    return RawData(x, y, columns.inputs(test), columns.targets(test))


def _opened(name: str, spec: TaskSpec) -> Dataset | DatasetDict:
    try:
        import datasets
    except ImportError as error:
        raise TaskError(
            f"task = {spec.task!r} needs the package datasets: pip install 'forager-fl[datasets]'"
        ) from error
    datasets.disable_progress_bars()
    place = Path(name).expanduser()
    try:
        if place.exists():
            return _local(datasets, place)
        if _names_a_file(name):  # which is nobody else's business: the hub is not asked for it
            raise TaskError(
                f"task = {spec.task!r}: there is no such file in {Path.cwd()}, where this runs; "
                "give its whole path, as in task = 'hf:/data/table.csv'"
            )
        repository, _, configuration = name.partition(":")
        return datasets.load_dataset(repository, configuration or None)
    except TaskError:
        raise
    except Exception as error:  # its own, of the network, of the files: all are reported by name
        if "no data" in str(error) or (place.is_file() and not place.stat().st_size):
            raise TaskError(f"{name}: there are no rows in it") from error
        what = "" if place.exists() else "there is no such file or folder here, and as a data set "
        raise TaskError(
            f"{name}: {what}it could not be read: {type(error).__name__}: {one_line(error)[:300]}"
        ) from error


def _names_a_file(name: str) -> bool:
    """Return whether a name is of a file or folder, and not ``user/name`` on the hub."""
    kinds = (*_TABLES, *_IMAGES, ".arrow", ".npz", ".npy", ".txt", ".tsv", ".zip")
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or name.lower().endswith(kinds)


def _local(datasets: Any, place: Path) -> Dataset | DatasetDict:
    if place.is_dir():
        if any((place / name).exists() for name in _ARROW):
            return datasets.load_from_disk(str(place))
        parts = {p.name: p for p in sorted(place.iterdir()) if (p / "state.json").exists()}
        if parts:
            return datasets.DatasetDict(
                {name: datasets.load_from_disk(str(part)) for name, part in parts.items()}
            )
    files = [place] if place.is_file() else sorted(f for f in place.rglob("*") if f.is_file())
    kinds = {_TABLES.get(file.suffix.lower(), file.suffix.lower()) for file in files}
    if kinds and kinds <= set(_IMAGES):
        return datasets.load_dataset("imagefolder", data_dir=str(place))
    if len(kinds) != 1 or not kinds <= set(_TABLES.values()):
        raise TaskError(
            f"{place}: holds {', '.join(sorted(kinds)) or 'nothing'}; expected an .npz file, an "
            f"Arrow folder, files of one of the kinds {', '.join(_TABLES)}, or images in one "
            "folder per class"
        )
    return datasets.load_dataset(kinds.pop(), data_files=_by_split(files))


def _by_split(files: list[Path]) -> dict[str, list[str]]:
    """Return files by the split that their names begin with; all of them train by default."""
    found: dict[str, list[str]] = {}
    for file in files:
        split = "test" if file.stem.lower().startswith(_TEST) else "train"
        found.setdefault(split, []).append(str(file))
    return found


def _splits(found: Dataset | DatasetDict, name: str) -> tuple[Dataset, Dataset | None]:
    if not isinstance(found, dict):
        return found, None
    train = next((found[split] for split in _TRAIN if split in found), None)
    test = next((found[split] for split in _TEST if split in found), None)
    if train is None and len(found) == 1:
        return next(iter(found.values())), None
    if train is None:
        raise TaskError(f"{name}: has the splits {', '.join(found)}; one must be called train")
    return train, test


class _Columns:
    """Which columns are inputs, targets and users."""

    def __init__(self, data: Dataset, spec: TaskSpec, test: Dataset | None = None) -> None:
        self.spec, names = spec, list(data.column_names)
        self._target = spec.target_column or next((n for n in _TARGETS if n in names), "")
        if self._target not in names:
            apart = "; separate columns by commas" if ";" in "".join(names) else ""
            allowed = f"one of {', '.join(names)}{apart}"
            raise invalid("target_column", spec.target_column, allowed)
        if spec.user_column and spec.user_column not in names:
            raise invalid("user_column", spec.user_column, f"one of {', '.join(names)}")
        others = [n for n in names if n not in (self._target, spec.user_column)]
        chosen = [name.strip() for name in spec.input_columns.split(",") if name.strip()]
        unknown = [name for name in chosen if name not in others]
        if unknown or not others:
            allowed = f"some of {', '.join(others)}, separated by commas"
            raise invalid("input_columns", spec.input_columns, allowed)
        self.names = chosen or others
        splits = [data] if test is None else [data, test]
        self._labels = np.unique(np.concatenate([self._column(split) for split in splits]))

    def inputs(self, data: Dataset) -> NDArray[Any]:
        """Return the input columns: numbers side by side, or one column of images or lists."""
        columns = [_values(data, name) for name in self.names]
        if len(columns) == 1:
            column = columns[0]
            return column[:, None] if column.ndim == 1 else column
        for name, column in zip(self.names, columns, strict=True):
            if column.ndim != 1:
                raise TaskError(
                    f"column {name!r} holds more than a number per sample; with several input "
                    "columns each must hold one: choose by data.input-columns"
                )
        return np.stack(columns, axis=1)

    def targets(self, data: Dataset) -> NDArray[Any]:
        """Return the target column; texts become classes in the order of the alphabet."""
        column = self._column(data)
        return np.searchsorted(self._labels, column) if column.dtype.kind in "US" else column

    def _column(self, data: Dataset) -> NDArray[Any]:
        return np.asarray(data.with_format(None)[self._target][:])

    def users(self, data: Dataset) -> NDArray[Any] | None:
        """Return who each sample belongs to, if a column says so."""
        if not self.spec.user_column:
            return None
        return np.asarray(data[self.spec.user_column][:])


def _values(data: Dataset, name: str) -> NDArray[Any]:
    """Return a column as one array; images as uint8."""
    values = [np.asarray(value) for value in data[name][:]]
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        raise TaskError(
            f"column {name!r} holds samples of different shapes, such as "
            f"{', '.join(map(str, sorted(shapes)[:2]))}; make them alike, or bring a task of your "
            "own with a collate function"
        )
    column = np.stack(values) if values else np.zeros((0, 1), dtype=np.float32)
    if column.dtype.kind not in "fiub":
        text, empty = column.dtype.kind == "U", [v.dtype.kind == "O" for v in values]
        what = f"holds text, such as {str(column[0])!r}" if text else f"holds {column.dtype}"
        if any(empty):
            what = f"row {empty.index(True) + 1} is empty; fill it or remove the row"
        raise TaskError(
            f"column {name!r}: {what}; inputs must be numbers or images: choose columns with "
            "data.input-columns"
        )
    return column
