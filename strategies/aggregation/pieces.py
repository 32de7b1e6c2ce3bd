"""Strategies that work entry by entry, given a few entries of all replies at a time.

Replies wait on disk once they are many or large, so that the memory that aggregation takes depends
neither on the number of clients nor on the size of the model.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, METRICS
from ...core.wire.records import filled, records_of
from ..federation.waiting_replies import IN_MEMORY
from ..layers.base import Outcome

_PIECE = 2**26  # bytes of all replies that a strategy is given at a time

Part = tuple[str, int, int]  # entries of an array, from and to


class Pieces:
    """Replies without their arrays, and the arrays in a file, one client after the other."""

    def __init__(self, replies: Iterable[Message], folder: Path | None = None) -> None:
        # Not in the system's folder for such files, which may be in memory
        self._file = SpooledTemporaryFile(  # noqa: SIM115 closed by aggregate
            IN_MEMORY, dir=str(folder) if folder else None
        )
        self._like: dict[str, NDArray[Any]] = {}  # shapes and types; no entries
        self._metrics: list[tuple[Message, MetricRecord]] = []
        for reply in replies:
            arrays = from_record(records_of(reply.content, ArrayRecord)[0])
            self._metrics.append((reply, records_of(reply.content, MetricRecord)[0]))
            reply.content = RecordDict()
            if not self._like:
                self._like = {n: np.empty((0, *a.shape), a.dtype) for n, a in arrays.items()}
            for name in self._like:
                self._file.write(arrays[name].tobytes())

    def aggregate(self, strategy: Callable[[list[Message]], Outcome]) -> Outcome:
        """Return a strategy's result for all replies."""
        with self._file:
            done: dict[str, list[NDArray[Any]]] = {name: [] for name in self._like}
            metrics = None
            for piece in self._pieces():
                arrays, metrics = strategy(self._replies(piece))
                if arrays is None:
                    return None, None
                for name, entries in from_record(arrays).items():
                    done[name].append(entries.ravel())
        whole = {
            name: np.concatenate(parts).reshape(self._like[name].shape[1:])
            for name, parts in done.items()
        }
        return (to_record(whole), metrics) if self._metrics else (None, None)

    def _pieces(self) -> Iterator[list[Part]]:
        """Yield the parts of arrays that are small enough together, in all replies."""
        piece, size = list[Part](), 0
        for name, like in self._like.items():
            entries = math.prod(like.shape[1:])
            total = entries * like.itemsize * len(self._metrics)
            cuts = np.linspace(0, entries, 1 + max(1, -(-total // _PIECE)), dtype=int).tolist()
            for start, end in pairwise(cuts):
                own = total * (end - start) // max(1, entries)
                if piece and size + own > _PIECE:
                    yield piece
                    piece, size = [], 0
                piece.append((name, start, end))
                size += own
        if piece:
            yield piece

    def _replies(self, piece: list[Part]) -> list[Message]:
        """Return replies that hold nothing but some entries."""
        starts, row = dict[str, int](), 0
        for name, like in self._like.items():
            starts[name] = row
            row += math.prod(like.shape[1:]) * like.itemsize
        replies = []
        for client, (reply, metrics) in enumerate(self._metrics):
            arrays = {}
            for name, start, end in piece:
                like = self._like[name]
                whole = end - start == math.prod(like.shape[1:])
                self._file.seek(client * row + starts[name] + start * like.itemsize)
                part = np.frombuffer(self._file.read((end - start) * like.itemsize), like.dtype)
                arrays[name] = part.reshape(like.shape[1:]) if whole else part
            reply.content = filled(RecordDict, {ARRAYS: to_record(arrays), METRICS: metrics})
            replies.append(reply)
        return replies
