"""A file of records that only grows at its end, so that a crash can break no more than the last.

Every record has its length and a checksum in front. A process that is killed while it writes
leaves at most one broken record, which is cut off when the file is opened again. The header says
what the file is; it is written with the file's first byte or not at all.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..core.storage import tree
from ..core.storage.files import replacing

_MAGIC = b"FORAGER-LOG-1\n\0\0"
_PREFIX = struct.Struct("<II")  # length and checksum of what follows


class RecordLogError(ValueError):
    """The file is not a log of this kind; the message says what it is."""


class CutOffError(RecordLogError):
    """The file ends before its header does, as when a disk loses power: no record was in it."""


class RecordLog:
    """Records of bytes in a file, after a header.

    Parameters
    ----------
    path : Path
        The file, which must be there; :meth:`create` makes one.
    kind : str
        What is in it. A log of another kind is refused.

    Attributes
    ----------
    header : dict
        What the file was created with.
    end : int
        Bytes up to the end of the last whole record.
    lost : int
        Bytes that were cut off the end when the file was opened.

    Raises
    ------
    RecordLogError
        If the file is something else, or damaged where it says what it is.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = RecordLog.create(Path(folder.name, "log"), {"task": "digits"}, "demo")
    >>> first, second = log.append([b"one", b"two"])
    >>> log.read(second)
    b'two'
    >>> log.close()
    >>> log = RecordLog(Path(folder.name, "log"), "demo")
    >>> log.header, [record for _, record in log.records()]
    ({'task': 'digits'}, [b'one', b'two'])
    >>> log.close(); folder.cleanup()
    """

    OVERHEAD = _PREFIX.size
    """Bytes that a record takes besides its own."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self._file: BinaryIO = path.open("r+b", buffering=0)
        try:
            self.header = self._read_header()
        except RecordLogError:
            self._file.close()
            raise
        self.start = self.end = self._file.tell()
        for offset, record in self.records():
            self.end = offset + _PREFIX.size + len(record)
        self.lost = self._size() - self.end
        if self.lost:
            self._file.truncate(self.end)

    @classmethod
    def create(cls, path: Path, header: tree.Tree, kind: str) -> "RecordLog":
        """Return a new log without records, in place of any file that is there."""
        with replacing(path) as file:
            file.write(_MAGIC + _framed(tree.to_bytes(header, kind)))
        return cls(path, kind)

    def append(self, records: Iterable[bytes]) -> list[int]:
        """Write records, all or none; return where they are. Errors are those of the disk."""
        offsets, end = [], self.end
        try:
            self._file.seek(end)
            for record in records:
                offsets.append(end)
                end += _write(self._file, _framed(record))
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(self.end)
            raise
        self.end = end
        return offsets

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the place and content of every record, up to the first that is broken."""
        offset, size = self.start, self._size()
        while (record := self._record(offset, size)) is not None:
            yield offset, record
            offset += _PREFIX.size + len(record)

    def read(self, offset: int) -> bytes:
        """Return the record at a place."""
        record = self._record(offset, self.end)
        if record is None:
            raise RecordLogError(f"{self.path}: the record at byte {offset} is broken")
        return record

    def rewrite(self, offsets: Iterable[int]) -> list[int]:
        """Keep only these records, in this order, in a new file that takes the old one's place."""
        moved, end = [], self.start
        self._file.seek(0)
        with replacing(self.path) as file:
            file.write(self._file.read(self.start))
            for offset in offsets:
                moved.append(end)
                end += file.write(_framed(self.read(offset)))
        self._file.close()
        self._file = self.path.open("r+b", buffering=0)
        self.end = end
        return moved

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _record(self, offset: int, size: int) -> bytes | None:
        """Return the record at a place, if there is a whole and sound one before ``size``."""
        if offset + _PREFIX.size > size:
            return None
        self._file.seek(offset)
        length, checksum = _PREFIX.unpack(self._file.read(_PREFIX.size))
        # Zeros, which some file systems leave after a power cut, would be sound but for the length.
        if length == 0 or offset + _PREFIX.size + length > size:
            return None
        record = self._file.read(length)
        return record if zlib.crc32(record) == checksum else None

    def _read_header(self) -> tree.Tree:
        magic, prefix = self._file.read(len(_MAGIC)), self._file.read(_PREFIX.size)
        if not _MAGIC.startswith(magic):
            raise RecordLogError(f"{self.path}: not a log of this project, or of another version")
        length = _PREFIX.unpack(prefix)[0] if len(prefix) == _PREFIX.size else 1
        if len(magic) + len(prefix) + length > self._size():
            raise CutOffError(f"{self.path}: ends before its header does")
        header = self._file.read(length)
        try:
            return tree.from_bytes(header, self.kind)
        except tree.TreeError as error:
            raise RecordLogError(f"{self.path}: {error}") from error


def _framed(record: bytes) -> bytes:
    return _PREFIX.pack(len(record), zlib.crc32(record)) + record


def _write(file: BinaryIO, data: bytes) -> int:
    """Write all of the data, which an unbuffered file may take in parts; return its length."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    return len(data)
