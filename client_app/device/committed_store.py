"""A store on the disk that says when its samples are safe."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ...core.storage.tree import Tree
from .sample_file import Row, SampleFile
from .sample_store import DiskStore


class _Watched(SampleFile):
    """A file of samples that remembers whether the last change is on the disk."""

    written = False

    def write(self, new: Sequence[Row], keys: Collection[int], memo: Tree) -> bool:
        self.written = False
        self.written = super().write(new, keys, memo)
        return self.written


class CommittedStore(DiskStore):
    """Calls back after each commit that has reached the disk; not where the disk is full."""

    def __init__(
        self,
        path: Path,
        made_for: str,
        capacity: int,
        capacity_bytes: int,
        committed: Callable[[], None],
    ) -> None:
        super().__init__(path, made_for, capacity, capacity_bytes)
        self._file: _Watched = _Watched(path, made_for)
        self._committed = committed

    def commit(self) -> None:
        """Write what has changed; call back if it is on the disk."""
        super().commit()
        if self._file.written:
            self._committed()
