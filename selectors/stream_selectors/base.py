"""The base class of rules for a stream, which decide on samples as they arrive."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .value_store import checked_capacity

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FIELDS = {"loss": "losses", "norm": "gradient_norms", "value": "values"}


@dataclass(frozen=True)
class Offered:
    """Samples that arrived, in order, and what is known about them."""

    keys: ArrayLike  # one number per sample, the same whenever the sample is seen again
    labels: ArrayLike  # their classes
    # What a rule may need: the loss of each sample, the length of its gradient, its value. What is
    # not finite is unusable, and the sample is not stored.
    losses: ArrayLike | None = None
    gradient_norms: ArrayLike | None = None
    values: ArrayLike | None = None

    def __len__(self) -> int:
        return len(np.asarray(self.keys))

    def scores(self, need: str) -> Floats:
        """Return what a rule needs: "loss", "norm" or "value".

        >>> Offered([7], [0], losses=[0.5]).scores("norm")
        Traceback (most recent call last):
        ValueError: gradient_norms: needed by this rule, and not given
        """
        given = getattr(self, _FIELDS[need])
        if given is None:
            raise ValueError(f"{_FIELDS[need]}: needed by this rule, and not given")
        scores = np.asarray(given, dtype=np.float64)
        if scores.shape != (len(self),):
            expected = f"expected {len(self)} as in keys, got shape {scores.shape}"
            raise ValueError(f"{_FIELDS[need]}: {expected}")
        return scores

    def numbered(self) -> list[tuple[int, int]]:
        """Return the pairs of key and label."""
        keys, labels = np.asarray(self.keys), np.asarray(self.labels)
        for name, column in {"keys": keys, "labels": labels}.items():
            if column.shape != keys.shape or column.ndim != 1:
                raise ValueError(f"{name}: expected {len(keys)} numbers, got {column.shape}")
            if column.size and column.dtype.kind not in "iu":
                raise ValueError(f"{name}: expected whole numbers, got {column.dtype}")
        return list(zip(keys.tolist(), labels.tolist(), strict=True))


@dataclass(frozen=True)
class Decision:
    """The outcome for an offered batch."""

    # Positions in the batch of the samples that are now stored and were not before
    kept: NDArray[np.intp]
    evicted: Ints  # keys that were stored before and are not any more


class Lot:
    """A seeded generator that is made when something is drawn: many contacts draw nothing.

    - ``state``: the seed while nothing was drawn, then the generator's state.

    >>> lot = Lot(3)
    >>> lot.state, lot.draw(2).tolist() == np.random.default_rng(3).random(2).tolist()
    (3, True)
    >>> other = Lot(0)
    >>> other.state = lot.state
    >>> other.draw(1).tolist() == lot.draw(1).tolist()
    True
    """

    def __init__(self, seed: int) -> None:
        self.state = seed

    @property
    def state(self) -> Any:
        """Where the generator is."""
        return self._state if self._rng is None else self._rng.bit_generator.state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state
        self._rng: np.random.Generator | None = None

    def draw(self, count: int) -> Floats:
        """Return numbers between 0 and 1."""
        if self._rng is None:
            drawn = isinstance(self._state, dict)
            self._rng = np.random.default_rng(0 if drawn else self._state)
            if drawn:
                self._rng.bit_generator.state = self._state
        return self._rng.random(count)


class StreamSelector:
    """Holds at most ``capacity`` samples of a stream: their keys and labels.

    A batch is decided on as if its samples came one by one. A sample that is stored is not stored
    again.

    - ``capacity``: most samples to keep; with 0 none is kept.
    - ``seed``: of the rule's own random generator, if it draws.

    - ``needs``: what it must know of a sample: "nothing", "loss", "norm" or "value". The device
      computes nothing else.
    """

    needs: ClassVar[str] = "nothing"

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = checked_capacity(capacity)
        self._lot = Lot(seed)
        self._labels: dict[int, int] = {}  # of what is stored, by key

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, key: int) -> bool:
        return key in self._labels

    @property
    def kept(self) -> Ints:
        """Keys of the stored samples, in order of arrival."""
        return np.fromiter(self._labels, dtype=np.int64, count=len(self))

    @property
    def labels(self) -> Ints:
        """Labels of the stored samples, in the order of :attr:`kept`."""
        return np.fromiter(self._labels.values(), dtype=np.int64, count=len(self))

    @property
    def values(self) -> Floats:
        """Values of the stored samples, in the order of :attr:`kept`; NaN if a rule has none."""
        return np.full(len(self), np.nan)

    def offer(self, batch: Offered) -> Decision:
        """Decide which of these samples to keep, and what has to go for them."""
        entered: dict[int, int] = {}
        evicted: dict[int, None] = {}
        numbered, scores = batch.numbered(), self._scores(batch).tolist()
        for position, ((key, label), score) in enumerate(zip(numbered, scores, strict=True)):
            if not math.isfinite(score):
                continue
            if key in self._labels:
                self._again(key, score)
                continue
            stored, gone = self._place(key, label, score)
            if gone is not None:
                self._labels.pop(gone)
                if entered.pop(gone, None) is None:
                    evicted[gone] = None
            if stored:
                self._labels[key] = label
                if key in evicted:  # it went and came back: nothing changed
                    del evicted[key]
                else:
                    entered[key] = position
        kept = np.fromiter(entered.values(), dtype=np.intp, count=len(entered))
        return Decision(np.sort(kept), np.fromiter(evicted, dtype=np.int64, count=len(evicted)))

    def revalue(self, batch: Offered) -> None:
        """Take new scores of stored samples, as the model has changed; others are ignored."""

    def discard(self, keys: ArrayLike) -> None:
        """Forget samples that could not be stored, or were lost."""
        for key in np.asarray(keys, dtype=np.int64).tolist():
            if self._labels.pop(key, None) is not None:
                self._forget(key)

    def _scores(self, batch: Offered) -> Floats:
        """Return one number per sample, by which it is placed."""
        return np.zeros(len(batch)) if self.needs == "nothing" else batch.scores(self.needs)

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        """Decide on one sample; return whether it is stored, and the key that goes for it."""
        raise NotImplementedError

    def _again(self, key: int, score: float) -> None:
        """Note that a stored sample was seen again."""

    def _forget(self, key: int) -> None:
        """Drop what the rule remembers of a sample that is gone."""

    def state_dict(self) -> dict[str, Any]:
        """Return the stored samples, and the generator."""
        return {"keys": self.kept, "labels": self.labels, "rng": self._lot.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        pairs = zip(state["keys"].tolist(), state["labels"].tolist(), strict=True)
        self._labels = dict(pairs)
        self._lot.state = state["rng"]
        self._shrink()

    def _shrink(self) -> None:
        """Drop what exceeds the capacity, the oldest first."""
        for key in list(self._labels)[: max(0, len(self) - self.capacity)]:
            del self._labels[key]
