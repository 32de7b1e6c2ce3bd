"""Data that arrive over time: a partition played as a stream, a folder, a user's own source.

To bring your own source, write a function that takes the number of samples taken so far, and gives
those that came after as pairs of input and label. It is called at every contact with the server,
and on a device every contact is a new process. A source that cannot go back, such as a sensor,
ignores the number and gives what it has; what is not taken, because there is more than a contact's
limit, it must give again. ``OwnStream`` takes the function by name, as ``module:attribute``.
"""

import math
import operator
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....selectors.stateful import Stateful
from ..errors import TaskError, imported, invalid, one_line, own_code
from ..splits import generator
from .arrivals import (
    Arrivals,
    Floats,
    LabelRates,
    RoundClock,
    Stream,
    content_keys,
    fitted,
    without_unusable,
)
from .folder import FolderStream

__all__ = ["Arrivals", "FolderStream", "OwnStream", "PartitionStream", "Stream"]

Source = Callable[[int], Iterator[tuple[ArrayLike, int]]]

LIMIT = 4096
"""Samples that one contact with the server takes from a source by default."""

_RECENT = 50  # rounds whose arrivals say how fast each label is, where that changes


class PartitionStream(Stateful):
    """A client's samples, one after the other; when all have been seen, all again in a new order.

    Drift, from 0 to 1, says how much the mix of classes changes in the course of a pass: at 1 one
    class comes after the other, in every pass in another order. Keys are positions in the
    partition. Labels are the partition's own, noise included. Nothing is
    remembered but how far the stream was read, so a contact costs no more than one pass, after
    however long: of more than that the latest are given.
    """

    remembers = ("_clock", "_given")

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        velocity: float,
        *,
        seed: int = 0,
        partition_id: int = 0,
        drift: float = 0.0,
    ) -> None:
        self.x, self.y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64)
        self.velocity, self.drift = _checked_velocity(velocity), drift
        if not 0 <= drift <= 1:
            raise invalid("drift", drift, "a number in [0, 1]")
        self._ids = (seed, partition_id)
        self._clock = RoundClock()
        self._given = 0

    def arrivals(self, until_round: int) -> Arrivals:
        """Give what arrived since the last call, up to the end of a round."""
        count = self._arrived_in(self._clock.advance(until_round))
        self._given += count
        keys = self._latest(count)
        return Arrivals(keys, self.x[keys], self.y[keys])

    def label_velocity(self, num_classes: int) -> Floats:
        """Give the samples of each label that arrive per round: lately, where there is drift."""
        labels = self.y
        if self.drift:
            keys = self._latest(self._arrived_in(_RECENT))
            labels = self.y[keys] if len(keys) else labels
        counts = np.bincount(labels, minlength=num_classes)[:num_classes].astype(np.float64)
        return counts * (self.velocity / max(1, len(labels)))

    def _arrived_in(self, rounds: int) -> int:
        """How many samples arrived in the last rounds."""
        now = self._clock.now
        return self._arrived_by(now) - self._arrived_by(max(0, now - rounds))

    def _arrived_by(self, now: int) -> int:
        """How many samples arrive up to the end of a round."""
        return math.floor(self.velocity * now + 1e-9) if len(self.y) else 0

    def _latest(self, count: int) -> NDArray[np.int64]:
        """Positions of the last samples of the stream, no more than one pass."""
        size, last = max(1, len(self.y)), self._given
        first = max(0, last - min(count, size))
        parts = [np.zeros(0, dtype=np.int64)]
        for number in range(first // size, -(-last // size)):
            start = number * size
            parts.append(self._order(number)[max(0, first - start) : last - start])
        return np.concatenate(parts)

    def _order(self, number: int) -> NDArray[np.int64]:
        """Order of the samples in one pass."""
        seed, partition_id = self._ids
        rng = generator(seed, "stream", partition_id, number)
        place = rng.random(len(self.y))
        if self.drift:
            classes, label = np.unique(self.y, return_inverse=True)
            turn = rng.permutation(len(classes))[label]
            by_class = np.empty(len(place))
            by_class[np.lexsort((place, turn))] = np.arange(len(place)) / len(place)
            place = (1 - self.drift) * place + self.drift * by_class
        return np.argsort(place, kind="stable")


class OwnStream(Stateful):
    """Samples of the user's own source: a function named by ``module:attribute``.

    Keys are made of the samples' content. Samples that are not finite or of an unknown label are
    left out. A velocity is for a source that never ends: the samples to take per round; 0 takes all
    there are. What exceeds the limit of one contact is left for the next.
    """

    remembers = ("_taken", "_due", "_rates", "_clock")

    def __init__(
        self,
        source: str | Source,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        velocity: float = 0.0,
        limit: int = LIMIT,
    ) -> None:
        self._source = _find(source) if isinstance(source, str) else source
        self._name = source if isinstance(source, str) else getattr(source, "__name__", "source")
        self.input_shape, self.num_classes = input_shape, num_classes
        self.velocity, self.limit = _checked_velocity(velocity), limit
        self._clock, self._rates = RoundClock(), LabelRates()
        self._taken = 0
        self._due = 0.0

    def arrivals(self, until_round: int) -> Arrivals:
        """Give what arrived since the last call, up to the end of a round."""
        rounds = self._clock.advance(until_round)
        count = self.limit
        if self.velocity:
            self._due += self.velocity * rounds
            count = min(count, math.floor(self._due + 1e-9))
        pairs = self._take(count)
        self._taken += len(pairs)
        self._due = max(0.0, self._due - len(pairs))
        arrived = without_unusable(self._arrays(pairs), self.num_classes, self._name)
        self._rates.observe(arrived.y, rounds)
        return arrived

    def label_velocity(self, num_classes: int) -> Floats:
        """Give the samples of each label that arrived per round, lately."""
        return self._rates.per_round(num_classes)

    def _take(self, count: int) -> list[tuple[ArrayLike, int]]:
        with own_code(f"stream source {self._name!r}"):
            return list(islice(self._source(self._taken), count))

    def _arrays(self, pairs: list[tuple[ArrayLike, int]]) -> Arrivals:
        inputs = np.empty((len(pairs), *self.input_shape), dtype=np.float32)
        labels = np.empty(len(pairs), dtype=np.int64)
        try:
            for row, (x, y) in enumerate(pairs):
                inputs[row] = fitted(np.asarray(x)[None], self.input_shape)[0]
                labels[row] = operator.index(y)
        except (TypeError, ValueError) as error:
            expected = "pairs of an input and a label"
            raise TaskError(
                f"stream source {self._name!r} must give {expected}: {one_line(error)}"
            ) from error
        return Arrivals(content_keys(inputs, labels), inputs, labels)


def _checked_velocity(velocity: float) -> float:
    if not 0 <= velocity < math.inf:
        raise invalid("velocity", velocity, "a finite number of at least 0")
    return float(velocity)


def _find(name: str) -> Source:
    found = imported("source", name)
    if not callable(found):
        raise invalid("source", name, "the name of a function that gives samples")
    return found  # type: ignore[no-any-return]
