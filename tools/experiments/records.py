"""The sweep file: one JSON line per finished run, whole or recognisably torn after any crash."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

Scalar = int | float | bool | str
Row = Mapping[str, object]
Key = tuple[str, str, int]

LINE_START = b'{"cell": '


class SweepError(ValueError):
    """A sweep that cannot be run or read as it was asked for."""


@dataclass(frozen=True)
class Cell:
    """One named run config of a sweep; the sweep adds the seed and the output folder."""

    name: str
    config: Mapping[str, Scalar]

    def __post_init__(self) -> None:
        if not self.name:
            raise SweepError("cell name: '' is empty; give every cell a name")
        for key, value in self.config.items():
            if key in ("seed", "output-dir"):
                raise SweepError(f"cell {self.name!r}: {key!r} is set by the sweep, leave it out")
            if not isinstance(value, Scalar):
                raise SweepError(
                    f"cell {self.name!r}: {key!r} is {value!r}; allowed are int, float, bool, str"
                )

    @property
    def digest(self) -> str:
        """Short hash of the config; the order of its keys does not matter."""
        text = json.dumps(dict(self.config), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SweepRecord:
    """One finished run, as a line of the sweep file."""

    # `cell` stays first: LINE_START distinguishes a torn line from a foreign file.
    cell: str
    seed: int
    digest: str
    status: Literal["completed", "failed"]
    reason: str
    error: str
    seconds: float
    config: Mapping[str, Scalar]
    rows: list[Row]
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What makes two runs the same run."""
        return self.cell, self.digest, self.seed

    def line(self) -> bytes:
        """Return the record as one line of JSON, its rows by column, which is much shorter."""
        return json.dumps(asdict(self) | {"rows": by_column(self.rows)}).encode() + b"\n"


def by_column(rows: Sequence[Row]) -> dict[str, list[object]]:
    """Turn rows into columns; what a row lacks is None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def by_row(columns: Mapping[str, Sequence[object]]) -> list[Row]:
    """Turn columns into rows again, without what was not measured."""
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def parse(data: bytes, name: str) -> tuple[list[SweepRecord], int]:
    """Return the records in a sweep file's content, and how many bytes of it are whole lines."""
    *lines, torn = data.split(b"\n")
    if torn[: len(LINE_START)] != LINE_START[: len(torn)]:
        raise SweepError(f"{name} is not a sweep file: its last line is no part of a record")
    records = [_parse_line(line, f"{name}, line {i}") for i, line in enumerate(lines, start=1)]
    return records, len(data) - len(torn)


def _parse_line(line: bytes, place: str) -> SweepRecord:
    try:
        fields = json.loads(line)
        if isinstance(fields["rows"], dict):
            fields["rows"] = by_row(fields["rows"])
        return SweepRecord(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise SweepError(f"{place}: not a record of a sweep file ({error})") from None


def read_records(path: Path) -> list[SweepRecord]:
    """Return all records of a sweep file, in the order in which the runs ended."""
    try:
        return parse(path.read_bytes(), str(path))[0]
    except OSError as error:
        raise SweepError(f"sweep file {path} cannot be read: {error.strerror}") from None


class SweepFile:
    """A sweep file held open by one sweep at a time, to append to; a torn last line is cut off."""

    records: list[SweepRecord]

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise SweepError(f"sweep file {path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> SweepFile:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.seek(0)
            self.records, size = parse(self._file.read(), str(self.path))
            self._file.truncate(size)
        except BlockingIOError:
            self._file.close()
            raise SweepError(f"sweep file {self.path} is in use by another sweep") from None
        except SweepError:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, record: SweepRecord) -> None:
        """Add one finished run; it is on disk when this returns."""
        self._file.write(record.line())
        self._file.flush()
        os.fsync(self._file.fileno())
