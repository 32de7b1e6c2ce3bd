"""The signals by which cohorts are found: a short vector per client that trained in a round."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.wire.arrays import from_record
from ...core.wire.keys import SUPPORT
from ...core.wire.replies import Replies
from ...selectors.cohorts.projection import Projection
from ...selectors.similarities.signed_overlap import split_codes
from ..similarities.support_similarity import SignedSupportReader, SupportReader, parameter_shapes
from .base import CohortSignals

Arrays = Mapping[str, NDArray[Any]]


class Signal:
    """The direction of a client's update, sketched by a fixed random projection."""

    own_records: tuple[str, ...] = ()
    outlives_its_round = True  # whether it can be told of a single reply, without the others

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

    def add(self, cohort: str, key: str, signal: NDArray[np.float64]) -> None:
        """Take the signal of a client that trained for a cohort."""
        self._seen[cohort].append((key, signal))

    def of(
        self, sent: Sequence[ArrayRecord | None], replies: Replies
    ) -> tuple[NDArray[np.float64], dict[int, str]]:
        """Return one signal per row (zero without a model), and the rows without one, and why."""
        signals = np.zeros((len(replies), self.dimension))
        rows = [row for row, model in enumerate(sent) if model is not None]
        for model in (sent[row] for row in rows):
            if model is not None and id(model) not in self._sketches:
                self._sketches[id(model)] = self.sketch(from_record(model))
        if rows:
            after = self.sketches({name: stack[rows] for name, stack in replies.arrays.items()})
            signals[rows] = after - [self._sketches[id(sent[row])] for row in rows]
        return signals, {}

    def sketch(self, arrays: Arrays) -> NDArray[np.float64]:
        """Return the sketch of the float arrays looked at."""
        sketch: NDArray[np.float64] = self.sketches({n: a[None] for n, a in arrays.items()})[0]
        return sketch

    def sketches(self, stacks: Arrays) -> NDArray[np.float64]:
        """Return the sketches of the float arrays looked at, one per row of the stacks."""
        layers = [array for array in stacks.values() if array.dtype.kind == "f"]
        if self._projection is None:
            sizes = [layer[0].size for layer in layers]
            self._projection = Projection(sizes, self.dimension, self.seed)
        return self._projection.sketch_stack(layers)

    def take(self, cohort: str) -> CohortSignals:
        """Return what the participants of a cohort did in this round."""
        rows = self._seen.pop(cohort, [])
        signals = np.array([signal for _, signal in rows]).reshape(len(rows), self.dimension)
        return CohortSignals([key for key, _ in rows], signals.astype(np.float32))


class SupportSignal(Signal):
    """Which parameters matter to a client: scalar products are the overlap, in expectation."""

    own_records = (SUPPORT,)

    def __init__(self, reader: SupportReader, dimension: int = 256, seed: int = 0) -> None:
        super().__init__(dimension, seed)
        self.reader = reader

    def of(
        self, sent: Sequence[ArrayRecord | None], replies: Replies
    ) -> tuple[NDArray[np.float64], dict[int, str]]:
        """Return the supports of replies, sketched; rows whose support cannot be read are wrong."""
        signals, wrong = np.zeros((len(replies), self.dimension)), dict[int, str]()
        for row in replies.rows():
            if sent[row.place] is None:
                continue
            marks = np.zeros(self.reader.size, dtype=np.float32)
            try:
                if row.has(SUPPORT):  # else nothing matters to the client, and it points nowhere
                    self.mark(marks, self.reader.read(row))
            except ValueError as error:
                wrong[row.place] = str(error)
            signals[row.place] = self.sketch({"support": marks})
        return signals, wrong

    def mark(self, marks: NDArray[np.float32], support: NDArray[np.int64]) -> None:
        """Write a support into a vector of zeros, as one of length 1."""
        marks[support] = 1.0 / np.sqrt(len(support))


class CentredSupportSignal(SupportSignal):
    """Which parameters matter to a client more than to others.

    The mean over all participants of the round, in all cohorts, is subtracted: within a homogeneous
    cohort the differences from that cohort's own mean would be noise only.
    """

    outlives_its_round = False  # the mean of its round is gone
    _mean: NDArray[np.float64] | None = None  # of the round, once a cohort is taken away

    def begin(self) -> None:
        """Forget the last round."""
        super().begin()
        self._mean = None

    def take(self, cohort: str) -> CohortSignals:
        """Return what sets the participants of a cohort apart."""
        if self._mean is None:
            seen = [signal for rows in self._seen.values() for _, signal in rows]
            self._mean = np.mean(seen, axis=0) if seen else np.zeros(self.dimension)
        self._seen[cohort] = [(key, row - self._mean) for key, row in self._seen[cohort]]
        return super().take(cohort)


class SignedSignal(SupportSignal):
    """What a client changed most, and its sign: scalar products are the signed overlap."""

    def mark(self, marks: NDArray[np.float32], support: NDArray[np.int64]) -> None:
        """Write changes into a vector of zeros, as one of length 1."""
        indices, signs = split_codes(support)
        marks[indices] = signs / np.sqrt(len(indices))


_BY_SUPPORTS: dict[str, tuple[type[SupportSignal], type[SupportReader]]] = {
    "centred-overlap": (CentredSupportSignal, SupportReader),
    "index-overlap": (SupportSignal, SupportReader),
    "signed-overlap": (SignedSignal, SignedSupportReader),
}


def signal_of(config: RunConfig) -> Signal:
    """Return what the cohorts of a run are found by."""
    if (
        config.cohorts in ("auxo", "split-test", "conflict-test")
        and config.similarity in _BY_SUPPORTS
    ):
        signal, reader = _BY_SUPPORTS[config.similarity]
        return signal(reader(parameter_shapes(config)), seed=config.seed)
    return Signal(seed=config.seed)
