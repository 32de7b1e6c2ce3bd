"""What cohorts are found by: a short vector for each client that trained in a round."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.wire.arrays import from_record
from ...core.wire.keys import ARRAYS, SUPPORT
from ...core.wire.records import sent_arrays
from ...selectors.cohorts.projection import Projection
from ...selectors.similarities.signed_overlap import split_codes
from ..similarities.support_reader import SignedSupportReader, SupportReader, parameter_shapes
from .base import CohortSignals

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
        self._sketches: dict[int, NDArray[np.float64]] = {}  # of the models sent, by identity
        self._seen: dict[str, list[tuple[str, NDArray[np.float64]]]] = defaultdict(list)

    def begin(self) -> None:
        """Forget the last round."""
        self._sketches = {}
        self._seen.clear()

    def add(self, cohort: str, key: str, sent: ArrayRecord, reply: Message) -> None:
        """Take the signal of a reply to the model that was sent; ValueError if it has none."""
        self._seen[cohort].append((key, self.of_reply(sent, reply)))

    def of_reply(self, sent: ArrayRecord, reply: Message) -> NDArray[np.float64]:
        """Return the signal of a reply to the model that was sent; ValueError if it has none."""
        if id(sent) not in self._sketches:
            self._sketches[id(sent)] = self.sketch(from_record(sent))
        after = from_record(sent_arrays(reply, ARRAYS))
        return self.sketch(after) - self._sketches[id(sent)]

    def of_late(self, sent: ArrayRecord, reply: Message) -> NDArray[np.float64] | None:
        """Return the signal of a reply that came after its round; None if it has none by itself."""
        return self.of_reply(sent, reply)

    def sketch(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return the sketch of the float arrays looked at."""
        layers = [array for array in arrays.values() if array.dtype.kind == "f"]
        if self._projection is None:
            sizes = [layer.size for layer in layers]
            self._projection = Projection(sizes, self.dimension, self.seed)
        return self._projection.sketch(layers)

    def take(self, cohort: str) -> CohortSignals:
        """Return what the participants of a cohort did in this round."""
        rows = self._seen.pop(cohort, [])
        signals = np.array([signal for _, signal in rows]).reshape(len(rows), self.dimension)
        return CohortSignals([key for key, _ in rows], signals.astype(np.float32))


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

    def of_reply(self, sent: ArrayRecord, reply: Message) -> NDArray[np.float64]:
        """Return the support of a reply, sketched; ValueError if it cannot be read."""
        marks = np.zeros(self.reader.size, dtype=np.float32)
        if SUPPORT in reply.content:  # else nothing matters to the client, and it points nowhere
            self.mark(marks, self.reader.read(reply))
        return self.sketch({"support": marks})

    def mark(self, marks: NDArray[np.float32], support: NDArray[np.int64]) -> None:
        """Write a support into a vector of zeros, as one of length 1."""
        marks[support] = 1.0 / np.sqrt(len(support))


class CentredSupportSignal(SupportSignal):
    """Which parameters matter to a client more than to others.

    The mean over all participants of the round, in whichever cohort, is subtracted: within a cohort
    of one kind nothing but noise would be left of the differences to that cohort's own mean.
    """

    _mean: NDArray[np.float64] | None = None  # of the round, once a cohort is taken away

    def begin(self) -> None:
        """Forget the last round."""
        super().begin()
        self._mean = None

    def of_late(self, sent: ArrayRecord, reply: Message) -> NDArray[np.float64] | None:
        """Return nothing: the mean of its round is gone."""
        return None

    def take(self, cohort: str) -> CohortSignals:
        """Return what sets the participants of a cohort apart."""
        if self._mean is None:
            seen = [signal for rows in self._seen.values() for _, signal in rows]
            self._mean = np.mean(seen, axis=0) if seen else np.zeros(self.dimension)
        self._seen[cohort] = [(key, row - self._mean) for key, row in self._seen[cohort]]
        return super().take(cohort)


class SignedSignal(SupportSignal):
    """Which parameters a client changed most, and in which direction.

    The scalar product of two such signals is, in expectation, the signed overlap.
    """

    def mark(self, marks: NDArray[np.float32], support: NDArray[np.int64]) -> None:
        """Write changes into a vector of zeros, as one of length 1."""
        indices, signs = split_codes(support)
        marks[indices] = signs / np.sqrt(len(indices))


_BY_SUPPORTS: dict[str, tuple[type[SupportSignal], type[SupportReader]]] = {
    "index-overlap": (CentredSupportSignal, SupportReader),
    "index-overlap-paper": (SupportSignal, SupportReader),
    "signed-overlap": (SignedSignal, SignedSupportReader),
}


def signal_of(config: RunConfig) -> Signal:
    """Return what the cohorts of a run are found by."""
    if config.cohorts in ("auxo", "auxo-paper") and config.similarity in _BY_SUPPORTS:
        signal, reader = _BY_SUPPORTS[config.similarity]
        return signal(reader(parameter_shapes(config)), seed=config.seed)
    return Signal(seed=config.seed)
