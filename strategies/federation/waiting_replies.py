"""Replies that wait until all have arrived: on disk if their models are many or large."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from ...core.wire.keys import ARRAYS
from ...core.wire.replies import Replies

IN_MEMORY = 2**27  # bytes of models; more wait on disk


class WaitingReplies:
    """Tables by cohort, to be read as often as needed; close it when done."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # on a disk; the system's folder for such files may be in memory
        self._file: IO[bytes] | None = None
        self._held = 0
        # Each with the place of its models in the file, and their names; none if it has them
        self._tables: dict[str, list[tuple[Replies, int, list[str]]]] = defaultdict(list)

    def add(self, cohort: str, table: Replies) -> None:
        """Keep a table."""
        size = sum(array.nbytes for array in table.arrays.values())
        if self._held + size <= IN_MEMORY:
            self._held += size
            self._tables[cohort].append((table.again(), 0, []))
            return
        self._file = self._file or TemporaryFile(dir=self._folder)  # noqa: SIM115 closed below
        place = self._file.seek(0, 2)
        for array in table.arrays.values():
            np.save(self._file, array)
        self._tables[cohort].append((table.again(without=ARRAYS), place, list(table.arrays)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def of(self, cohort: str) -> Iterator[Replies]:
        """Return the tables of a cohort, for somebody who may change them."""
        for table, place, names in self._tables[cohort]:
            own = table.again()
            if names and self._file is not None:
                self._file.seek(place)
                own.put(ARRAYS, {name: np.load(self._file) for name in names})
            yield own

    def close(self) -> None:
        """Forget all of them."""
        self._tables.clear()
        if self._file is not None:
            self._file.close()
