"""What a stream of samples gives, and what all streams share."""

import hashlib
import logging
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ....selectors.stateful import Stateful
from ..errors import invalid

Floats = NDArray[np.float64]

_log = logging.getLogger("forager")

_MEMORY = 50.0  # rounds after which an arrival counts for a third of what a new one does


class Arrivals(NamedTuple):
    """Samples that arrived, in order."""

    keys: NDArray[np.int64]
    x: NDArray[np.float32]
    y: NDArray[np.int64]


class Stream(Protocol):
    """Samples that arrive over time; rounds are the clock."""

    def arrivals(self, until_round: int) -> Arrivals:
        """Give what arrived since the last call, up to the end of a round."""

    def label_velocity(self, num_classes: int) -> Floats:
        """Give the samples of each label that arrive per round, as far as is known."""

    def state_dict(self) -> dict[str, Any]:
        """Return how far the stream was read."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` returned."""


class RoundClock(Stateful):
    """Rounds that have passed on a stream, also over several runs that count from 1."""

    remembers = ("now", "_round")

    def __init__(self) -> None:
        self.now = 0
        self._round = 0

    def advance(self, until_round: int) -> int:
        """Go on to a round; return how many have passed."""
        if until_round < 0:
            raise invalid("until_round", until_round, "a whole number of at least 0")
        passed = until_round - (self._round if until_round >= self._round else 0)
        self._round, self.now = until_round, self.now + passed
        return passed

    def ahead(self, until_round: int) -> int:
        """Return how many rounds would pass, and stay."""
        return copy(self).advance(until_round)


class LabelRates(Stateful):
    """Samples of each label per round, as observed; older arrivals count less."""

    remembers = ("_counts", "_rounds")

    def __init__(self) -> None:
        self._counts = np.zeros(0)
        self._rounds = 0.0

    def observe(self, labels: NDArray[np.int64], rounds: int, share: float = 1.0) -> None:
        """Count what arrived in this many rounds; only a share of it, if one is given."""
        counts = np.bincount(labels, minlength=len(self._counts)).astype(np.float64)
        older = np.exp(-rounds / _MEMORY)
        # The rounds weigh, together, the sum of a geometric series; so does what came in them.
        weight = (1 - older) / (1 - np.exp(-1 / _MEMORY))
        counts *= share * (weight / rounds if rounds else 1.0)
        counts[: len(self._counts)] += older * self._counts
        self._counts, self._rounds = counts, older * self._rounds + weight

    def per_round(self, num_classes: int) -> Floats:
        """Return the samples per round of each of the first labels."""
        rates = np.zeros(num_classes)
        known = self._counts[:num_classes] / max(self._rounds, 1.0)
        rates[: len(known)] = known
        return rates


def fitted(x: NDArray[Any], input_shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Turn samples into what the model takes: float32, channels first, uint8 as [0, 1]."""
    if x.dtype.kind not in "fiub":
        raise ValueError(f"samples are {x.dtype}, not numbers")
    if (1, *x.shape[1:]) == input_shape:
        x = x[:, None]
    if x.ndim == 4 and x.shape[1:] != input_shape == (x.shape[3], *x.shape[1:3]):
        x = np.moveaxis(x, 3, 1)
    if x.shape[1:] != input_shape:
        raise ValueError(f"samples of shape {x.shape[1:]} do not fit: the task has {input_shape}")
    scale = np.float32(255 if x.dtype == np.uint8 else 1)
    return np.ascontiguousarray(x, dtype=np.float32) / scale


def content_keys(x: NDArray[np.float32], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number per sample, made of its content: a copy of a sample is that sample again.

    >>> a, b, again = content_keys(np.float32([[1, 2], [3, 4], [1, 2]]), np.zeros(3, int))
    >>> bool(a == again != b)
    True
    """
    digests = [
        hashlib.blake2b(sample.tobytes() + label.tobytes(), digest_size=8).digest()
        for sample, label in zip(x, y, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def without_unusable(arrivals: Arrivals, num_classes: int, origin: str) -> Arrivals:
    """Leave out samples that are not finite, or of a label that the model does not know."""
    flat = arrivals.x.reshape(len(arrivals.x), -1) if len(arrivals.x) else arrivals.x
    usable = np.isfinite(flat).all(axis=tuple(range(1, flat.ndim)))
    usable &= (arrivals.y >= 0) & (arrivals.y < num_classes)
    if usable.all():
        return arrivals
    _log.warning(
        "%s: %d of %d samples left out: not finite, or with a label outside 0 to %d",
        origin,
        (~usable).sum(),
        len(usable),
        num_classes - 1,
    )
    return Arrivals(arrivals.keys[usable], arrivals.x[usable], arrivals.y[usable])
