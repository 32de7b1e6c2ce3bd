"""What cohorts are found by: a short vector for each client that trained in a round."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from ..core.wire.arrays import from_record
from ..core.wire.keys import ARRAYS, SUPPORT
from ..core.wire.records import sent_arrays
from ..core.wire.supports import MalformedSupport
from ..selectors.cohorts.projection import Projection
from .cohort_rules.base import Observed
from .support_reader import SupportReader

_log = logging.getLogger("forager")

Arrays = Mapping[str, NDArray[Any]]


class Signal:
    """The direction of a client's update, sketched by a fixed random projection.

    Parameters
    ----------
    dimension : int (default: 256)
        Length of a sketch.
    seed : int (default: 0)
        Of the projection.
    """

    own_records: tuple[str, ...] = ()

    def __init__(self, dimension: int = 256, seed: int = 0) -> None:
        self.dimension = dimension
        self.seed = seed
        self._projection: Projection | None = None
        self._sent: dict[int, ArrayRecord] = {}
        self._sketches: dict[int, NDArray[np.float64]] = {}  # of the models sent, by identity
        self._seen: dict[str, list[tuple[str, NDArray[np.float64]]]] = defaultdict(list)

    def sent(self, messages: Iterable[Message]) -> None:
        """Remember the models that clients start from."""
        self._sent = {m.metadata.dst_node_id: sent_arrays(m, ARRAYS) for m in messages}
        self._sketches = {}
        self._seen.clear()

    def add(self, cohort: str, key: str, reply: Message) -> bool:
        """Take the signal of a reply; False if it has none and is not to be used."""
        before = self._sent[reply.metadata.src_node_id]
        if id(before) not in self._sketches:
            self._sketches[id(before)] = self.sketch(from_record(before))
        after = from_record(sent_arrays(reply, ARRAYS))
        signal = self.sketch(after) - self._sketches[id(before)]
        self._seen[cohort].append((key, signal))
        return True

    def sketch(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return the sketch of the float arrays looked at."""
        layers = [array for array in arrays.values() if array.dtype.kind == "f"]
        if self._projection is None:
            sizes = [layer.size for layer in layers]
            self._projection = Projection(sizes, self.dimension, self.seed)
        return self._projection.sketch(layers)

    def take(self, cohort: str) -> Observed:
        """Return what the participants of a cohort did in this round."""
        rows = self._seen.pop(cohort, [])
        signals = np.array([signal for _, signal in rows]).reshape(len(rows), -1)
        return Observed([key for key, _ in rows], signals.astype(np.float32))


class SupportSignal(Signal):
    """Which parameters matter to a client, sketched: cohorts found without a single value.

    The scalar product of two such signals is, in expectation, the overlap of the supports.

    Parameters
    ----------
    reader : SupportReader
        Reads supports out of replies.
    dimension, seed : int
        As for :class:`Signal`.
    """

    own_records = (SUPPORT,)

    def __init__(self, reader: SupportReader, dimension: int = 256, seed: int = 0) -> None:
        super().__init__(dimension, seed)
        self.reader = reader

    def add(self, cohort: str, key: str, reply: Message) -> bool:
        """Take the support of a reply; False if it has none that can be read."""
        try:
            support = self.reader.read(reply)
        except MalformedSupport as error:
            _log.warning("client %s: its reply is not used: %s", key, error)
            return False
        marks = np.zeros(self.reader.size, dtype=np.float32)
        marks[support] = 1.0 / np.sqrt(len(support))
        self._seen[cohort].append((key, self.sketch({"support": marks})))
        return True
