"""One client's piece of work: its mini-batches, and what comes of it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tasks import Samples

UNUSED = -1  # fills up the rows of batches that are not full


def batch_seed(seed: int, client: str, server_round: int) -> int:
    """Return a seed that is different for every run, client and round."""
    text = f"{seed}/{client}/{server_round}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def batch_plans(
    sizes: Sequence[int],
    batch_size: int,
    epochs: int,
    steps: int,
    seeds: Sequence[int],
    own: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Return the positions of each client's mini-batches, shape (clients, steps, batch).

    They are ``epochs`` shuffled passes over its samples, or ``steps`` batches, or a client's
    ``own`` steps. Batches that are not full, and clients with fewer steps, are filled up with -1.
    """
    if any(own):
        usual = [steps or epochs * -(-size // batch_size) for size in sizes]
        each = np.array([mine or other for mine, other in zip(own, usual, strict=True)])
        plans = batch_plans(sizes, batch_size, 0, int(each.max()), seeds)
        plans[np.arange(plans.shape[1]) >= each[:, None]] = UNUSED
        return plans
    count = np.asarray(sizes)[:, None, None]
    width = min(batch_size, int(count.max()))
    per_pass = -(-count // width)
    if steps:
        epochs = int((-(-steps // per_pass)).max())
    samples = _shuffled(count, epochs, np.array(seeds, dtype=np.uint64))
    clients, _, longest = samples.shape
    total = steps or epochs * int(per_pass.max())
    if (count == longest).all():  # the same places for all
        filled = np.full((clients, epochs, int(per_pass.max()) * width), UNUSED)
        filled[:, :, :longest] = samples
        return filled.reshape(clients, -1, width)[:, :total]
    place = np.arange(epochs)[:, None] * per_pass * width + np.arange(longest)
    kept = (np.arange(longest) < count) & (place < total * width)
    plans = np.full((clients, total * width), UNUSED)
    rows = np.broadcast_to(np.arange(clients)[:, None, None], kept.shape)
    plans[rows[kept], place[kept]] = samples[kept]
    return plans.reshape(clients, total, width)


def _shuffled(
    count: NDArray[np.int64], epochs: int, seeds: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return, for every client and pass, a permutation of its positions, then other numbers."""
    longest = int(count.max())
    # A number for each pass and position that does not depend on how much data others have
    place = (np.arange(epochs)[:, None] << 32) + np.arange(longest)
    keys = _mix(seeds[:, None, None] + place.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    if (count < longest).any():
        keys[np.broadcast_to(np.arange(longest) >= count, keys.shape)] = np.iinfo(np.uint64).max
    return np.argsort(keys, axis=2, kind="stable")


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of 64-bit numbers (splitmix64's finaliser: Steele, Lea and Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Job:
    """Train the model with these arrays on these data; the seed decides the mini-batches.

    ``carried`` holds arrays like the model's that the objective needs, by the name it gives them.
    """

    arrays: Mapping[str, NDArray[Any]]
    data: Samples
    seed: int
    weights: NDArray[Any] | None = None
    carried: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    steps: int = 0  # mini-batches; 0 for as many as the settings say


@dataclass(frozen=True)
class Outcome:
    """The trained arrays, the mean loss over the steps taken, and how much was done.

    ``squares`` are the squared gradients of samples, flat over the trained parameters: the mean
    over steps of the mean over a step's samples, in parts: step t is in part t modulo their number.
    """

    arrays: dict[str, NDArray[Any]]
    loss: float
    num_examples: int
    steps: int
    squares: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class Outcomes(Sequence[Outcome]):
    """The outcomes of jobs that were trained together, as columns: row i belongs to job i."""

    arrays: dict[str, NDArray[Any]]
    losses: list[float]
    num_examples: list[int]
    steps: list[int]
    squares: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Outcomes":
        """Return any outcomes of jobs with the same model as columns."""
        if isinstance(outcomes, cls):
            return outcomes
        return cls(
            {n: np.stack([each.arrays[n] for each in outcomes]) for n in outcomes[0].arrays},
            [each.loss for each in outcomes],
            [each.num_examples for each in outcomes],
            [each.steps for each in outcomes],
            _stacked([each.squares for each in outcomes]),
        )

    def changes(self, models: Sequence[Mapping[str, NDArray[Any]]]) -> NDArray[np.float32]:
        """Return how each row differs from the model it started from, as ``flat_change`` does."""
        first = models[0]
        floats = [name for name, array in first.items() if array.dtype.kind == "f"]
        shared = all(model is first for model in models)
        sizes = [first[name].size for name in floats]
        found = np.empty((len(self), sum(sizes)), dtype=np.float32)
        for name, columns in zip(floats, np.split(found, np.cumsum(sizes)[:-1], 1), strict=True):
            before = first[name][None] if shared else np.stack([model[name] for model in models])
            trained = self.arrays[name].reshape(len(self), -1)
            np.subtract(trained, before.reshape(len(before), -1), out=columns, casting="same_kind")
        return found

    def __getitem__(self, index: int) -> Outcome:  # type: ignore[override]
        return Outcome(
            {name: array[index] for name, array in self.arrays.items()},
            self.losses[index],
            self.num_examples[index],
            self.steps[index],
            None if self.squares is None else self.squares[index],
        )

    def __iter__(self) -> Iterator[Outcome]:
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        return len(self.losses)


def _stacked(squares: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    known = [each for each in squares if each is not None]
    return np.stack(known) if known and len(known) == len(squares) else None
