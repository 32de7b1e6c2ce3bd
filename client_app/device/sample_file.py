"""A file of samples that a crash cannot break: an SQLite database with one transaction per change.

SQLite finds a torn write by itself, but not a bit that a worn-out card has turned. So every row has
a checksum, which also covers what the file was made for: a row that passes is whole, and of use.
"""

import errno
import json
import logging
import sqlite3
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.storage import tree
from ...core.storage.files import set_aside

_log = logging.getLogger("forager")

_KIND = "sample-memo"
_TABLES = [
    "samples (key INTEGER PRIMARY KEY, place INTEGER, label INTEGER, form, x, checksum INTEGER)",
    "about (name TEXT PRIMARY KEY, value)",
]
_MISSING = {"made-for": "it does not say what it holds", "memo": "its memo is missing"}
_COLUMNS = "place, key, label, form, x, checksum"
_PAGE = 4096  # bytes, SQLite's own default
_JOURNAL = "-journal"  # what SQLite calls the file that undoes an unfinished change
# Codes that say nothing about the content of the file; all others do.
_NOT_DAMAGE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
}


class StoredSample(NamedTuple):
    """A stored sample."""

    key: int
    label: int
    x: NDArray[Any]


class StoredContent(NamedTuple):
    """What a file holds: its samples in the order in which they came, and the memo."""

    rows: list[StoredSample]
    memo: tree.Tree


class _Damaged(OSError):
    """The file has something in it that was not written there."""


class SampleFile:
    """Samples and a memo in a file."""

    def __init__(self, path: Path, made_for: str) -> None:
        self.path, self.made_for = path, made_for

    def read(self) -> StoredContent:
        """Return what is in the file; nothing if there is none, or one made for something else.

        Of a damaged file it is what can still be read; an unusable one is set aside.
        """
        if not self.path.exists():
            return StoredContent([], {})
        try:
            with self._open() as file:
                if _is_new(file):  # the first write was not finished
                    return StoredContent([], {})
                made_for = bytes(_about(file, "made-for")).decode()
                ours = made_for == self.made_for or self._has_one_of_ours(file)
                content = self._sound(file) if ours else None
        except (_Damaged, ValueError, TypeError) as error:
            return self._rescue(error)
        if content is None:
            aside = set_aside(self.path, "other", companions=[_JOURNAL])
            what = f"holds samples for {made_for}, not for {self.made_for}"
            _log.warning("%s: %s: set aside as %s", self.path, what, aside.name)
            return StoredContent([], {})
        return content

    def write(self, new: Sequence[StoredSample], keys: Collection[int], memo: tree.Tree) -> bool:
        """Change the file to these samples in one transaction; False if the disk is full."""
        if not (keys or memo or self.path.exists()):
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._open() as file:
                for table in _TABLES:
                    file.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                self._write(file, new, keys, memo)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _log.warning("%s: disk full: stored samples stay, new ones are dropped", self.path)
            return False
        return True

    def _write(
        self,
        file: sqlite3.Connection,
        new: Sequence[StoredSample],
        keys: Collection[int],
        memo: tree.Tree,
    ) -> None:
        known = {key for (key,) in file.execute("SELECT key FROM samples")}
        gone = (known - set(keys)) | {row.key for row in new}
        file.executemany("DELETE FROM samples WHERE key = ?", [(key,) for key in gone])
        (last,) = file.execute("SELECT coalesce(max(place), 0) FROM samples").fetchone()
        columns = [
            (place, row.key, row.label, _form(row.x), row.x.tobytes())
            for place, row in enumerate(new, start=last + 1)
        ]
        file.executemany(
            f"INSERT INTO samples ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            [(*values, self._checksum(*values)) for values in columns],
        )
        about = {"made-for": self.made_for.encode(), "memo": tree.to_bytes(memo, _KIND)}
        file.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which is undone if anything goes wrong."""
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as file:
                file.text_factory = bytes  # a damaged text need not be one
                file.execute(f"PRAGMA page_size = {_PAGE}")
                file.execute("PRAGMA journal_mode = DELETE")
                # Every change is on the disk, the folder's entry included, when it is reported.
                file.execute("PRAGMA synchronous = EXTRA")
                file.execute("BEGIN IMMEDIATE")
                yield file
                file.execute("COMMIT")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path)) from error
            if code in _NOT_DAMAGE:
                raise OSError(f"{self.path}: {error}") from error
            raise _Damaged(f"{self.path}: {error}") from error
        except UnicodeDecodeError as error:  # in what SQLite says of a damaged name
            raise _Damaged(f"{self.path}: {error}") from error

    def _sound(self, file: sqlite3.Connection) -> StoredContent:
        """Return all that is in a file that is as it was written, and can be written to."""
        # Has no effect, but is refused where it would have one
        file.execute("DELETE FROM samples WHERE 0")
        (verdict,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != b"ok":
            raise _Damaged(" ".join(verdict.decode(errors="replace").split()))
        rows = []
        for place, *values in file.execute(f"SELECT {_COLUMNS} FROM samples ORDER BY place"):
            row = self._row(place, *values)
            if row is None:
                raise _Damaged("the checksum of a sample does not match")
            rows.append(row)
        return StoredContent(rows, tree.from_bytes(_about(file, "memo"), _KIND))

    def _has_one_of_ours(self, file: sqlite3.Connection) -> bool:
        """Return whether a sample is for the same use, whatever the damaged name of it may say."""
        found = file.execute(f"SELECT {_COLUMNS} FROM samples LIMIT 1").fetchone()
        return found is not None and self._row(*found) is not None

    def _rescue(self, error: Exception) -> StoredContent:
        """Return what can still be read of a damaged file, and write it to a new one."""
        found: dict[int, tuple[int, StoredSample]] = {}
        memo: tree.Tree = {}
        with closing(_with_new_first_page(self.path.read_bytes())) as file:
            for row, place in _readable(file):
                sample = self._row(place, *row)
                if sample is not None:
                    found[sample.key] = place, sample
            try:
                memo = tree.from_bytes(_about(file, "memo"), _KIND)
            except (sqlite3.Error, _Damaged, ValueError, TypeError) as lost:
                _log.debug("%s: the memo is lost: %s", self.path, lost)
        aside = set_aside(self.path, "damaged", companions=[_JOURNAL])
        rows = [row for _, row in sorted(found.values(), key=lambda pair: pair[0])]
        what = f"set aside as {aside.name}; {len(rows)} samples could be read"
        _log.warning("%s: damaged (%s): %s", self.path, error, what)
        self.write(rows, [row.key for row in rows], memo)
        return StoredContent(rows, memo)

    def _row(
        self, place: int, key: int, label: int, form: bytes, x: bytes, checksum: int
    ) -> StoredSample | None:
        """Return a sample, or None if it is not what was written, or was made for another use."""
        columns = place, key, label, form, x
        types = int, int, int, bytes, bytes
        if any(type(value) is not kind for value, kind in zip(columns, types, strict=True)):
            return None
        if self._checksum(*columns) != checksum:
            return None
        dtype, *shape = json.loads(form)
        return StoredSample(key, label, np.frombuffer(x, dtype=dtype).reshape(shape))

    def _checksum(self, place: int, key: int, label: int, form: bytes, x: bytes) -> int:
        numbers = struct.pack("<qqq", place, key, label)
        return zlib.crc32(x, zlib.crc32(self.made_for.encode() + form + numbers))


def _form(x: NDArray[Any]) -> bytes:
    """Return the type and shape of an array as JSON."""
    return json.dumps([x.dtype.str, *x.shape]).encode()


def _with_new_first_page(data: bytes) -> sqlite3.Connection:
    """Open a copy of a damaged file with a new first page, which tells where the tables are."""
    file, pages = sqlite3.connect(":memory:", isolation_level=None), len(data) // _PAGE
    file.text_factory = bytes
    file.execute(f"PRAGMA page_size = {_PAGE}")
    for table in _TABLES:
        file.execute(f"CREATE TABLE {table}")
    first = bytearray(file.serialize()[:_PAGE])
    first[28:32] = pages.to_bytes(4, "big")  # where SQLite keeps the size of the file
    if pages > 1:
        file.deserialize(bytes(first) + data[_PAGE : pages * _PAGE])
    return file


def _is_new(file: sqlite3.Connection) -> bool:
    (tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (pages,) = file.execute("PRAGMA page_count").fetchone()
    return bool(tables == 0 and pages <= 1)


def _about(file: sqlite3.Connection, name: str) -> bytes:
    found = file.execute("SELECT value FROM about WHERE name = ?", [name]).fetchone()
    if found is None:
        raise _Damaged(_MISSING[name])
    value: bytes = found[0]
    return value


def _readable(file: sqlite3.Connection) -> Iterator[tuple[Any, int]]:
    """Yield the rows of a damaged file, from both ends up to where it cannot be read."""
    for order in ("ASC", "DESC"):
        try:
            for place, *row in file.execute(f"SELECT {_COLUMNS} FROM samples ORDER BY key {order}"):
                yield row, place
        except sqlite3.Error as error:
            _log.debug("reading keys in %s order ends at: %s", order, error)
