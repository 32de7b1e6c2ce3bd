"""Replies that wait until all have come: on disk, once their models are many or large."""

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...core.wire.keys import ARRAYS
from ...core.wire.replies import Replies

IN_MEMORY = 2**27  # bytes of models; more wait on disk

Like = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


class WaitingReplies:
    """Tables by cohort, to be read as often as needed; close it when done."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # on a disk; the system's folder for such files may be in memory
        self._file: IO[bytes] | None = None
        self._held = 0
        # Each with the place of its models in the file, their shapes and types; none if it has them
        self._tables: dict[str, list[tuple[Replies, int, Like]]] = defaultdict(list)

    def add(self, cohort: str, table: Replies) -> None:
        """Keep a table."""
        models = table.arrays
        size = sum(array.nbytes for array in models.values())
        if self._held + size <= IN_MEMORY:
            self._held += size
            self._tables[cohort].append((table.again(), 0, {}))
            return
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 closed below
        place = self._file.seek(0, 2)
        for array in models.values():
            self._file.write(np.ascontiguousarray(array).data)
        like = {name: (array.shape, array.dtype) for name, array in models.items()}
        self._tables[cohort].append((table.again(without=ARRAYS), place, like))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def of(self, cohort: str) -> Iterator[Replies]:
        """Return the tables of a cohort, for somebody who may change them."""
        for table, place, like in self._tables[cohort]:
            own = table.again()
            if like:
                own.put(ARRAYS, self._read(place, like))
            yield own

    def _read(self, place: int, like: Like) -> dict[str, NDArray[Any]]:
        assert self._file is not None
        self._file.seek(place)
        return {
            name: np.frombuffer(self._file.read(math.prod(shape) * dtype.itemsize), dtype).reshape(
                shape
            )
            for name, (shape, dtype) in like.items()
        }

    def close(self) -> None:
        """Forget all of them."""
        self._tables.clear()
        if self._file is not None:
            self._file.close()
