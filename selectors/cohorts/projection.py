"""Short sketches of long updates, by one fixed random projection.

Clusters are found among sketches of ``dimension`` numbers, whatever the size of the model; the
server's memory does not grow with model size times clients. The projection is sparse (a count
sketch): it takes some coordinates of each layer, gives each a random sign and adds them up in
``dimension`` bins. It preserves inner products, and thus angles, in expectation. It is linear: the
sketch of a difference is the difference of the sketches.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, finite_rows

Floats = NDArray[np.float64]

_AT_ONCE = 32768  # coordinates that are worked on: they stay in the cache
_RUN = 64  # coordinates that are read together: single ones would cost a cache line each


class Projection:
    """A seeded random projection of a model's layers to one short vector.

    - ``sizes``: number of coordinates of each layer; one number for a flat update.
    - ``dimension``: length of a sketch.
    - ``seed``: same seed and sizes, same projection.
    - ``coordinates``: about how many coordinates are looked at. Of small layers, biases and heads,
      that is all; of large ones a sample.

    >>> project = Projection([1000, 10], dimension=8)
    >>> old = [np.ones((10, 100)), np.zeros(10)]
    >>> new = [layer + 0.5 for layer in old]
    >>> update = [np.full((10, 100), 0.5), np.full(10, 0.5)]
    >>> np.allclose(project.sketch(new) - project.sketch(old), project.sketch(update))
    True
    """

    def __init__(
        self, sizes: Sequence[int], dimension: int = 256, seed: int = 0, coordinates: int = 8192
    ) -> None:
        at_least(1, dimension=dimension, coordinates=coordinates, sizes=min(sizes, default=0))
        self.sizes, self.dimension = [int(size) for size in sizes], dimension
        rng = np.random.default_rng(seed)
        shares = _fair_shares(self.sizes, coordinates)
        self._runs = [_runs(n, k, rng) for n, k in zip(self.sizes, shares, strict=True)]
        sized = zip(self.sizes, self._runs, strict=True)
        seen = [n if runs is None else runs.size * _RUN for n, runs in sized]
        self._ends = np.cumsum(seen)
        # What is left out is made up for by the rest of its layer.
        scales = np.sqrt(np.array(self.sizes) / np.array(seen))
        signs = rng.choice(np.array([-1.0, 1.0]), size=int(self._ends[-1]))
        self._factors = (signs * np.repeat(scales, seen)).astype(np.float32)

    def sketch(self, layers: Sequence[ArrayLike]) -> Floats:
        """Return the sketch of an update, or of a model, given as arrays in the usual order."""
        sketch: Floats = self.sketch_stack([np.asarray(layer)[None] for layer in layers])[0]
        return sketch

    def sketch_each(self, updates: Sequence[Sequence[ArrayLike]]) -> Floats:
        """Return the sketches of several updates, one per row."""
        return np.array([self.sketch(layers) for layers in updates]).reshape(-1, self.dimension)

    def sketch_stack(self, layers: Sequence[ArrayLike]) -> Floats:
        """Return the sketches of several updates, one per row, from layers stacked by update."""
        stacks = [np.asarray(layer) for layer in layers]
        sizes = [math.prod(stack.shape[1:]) for stack in stacks]
        if sizes != self.sizes:
            raise ValueError(f"layers: expected sizes {self.sizes}, got {sizes}")
        sketches = np.empty((len(stacks[0]), self.dimension))
        at_once = -(-_AT_ONCE // self._factors.size)
        for start in range(0, len(sketches), at_once):
            some = slice(start, start + at_once)
            sketches[some] = self._folded([stack[some] for stack in stacks])
        return sketches

    def _folded(self, stacks: list[NDArray[Any]]) -> NDArray[np.float32]:
        """Return the coordinates that are looked at, with their signs, added up in bins."""
        count, bins = len(stacks[0]), -(-self._factors.size // self.dimension)
        values = np.zeros((count, bins * self.dimension), dtype=np.float32)
        start = 0
        for stack, runs, end in zip(stacks, self._runs, self._ends, strict=True):
            flat = stack.reshape(count, -1)
            if runs is not None:
                whole = flat[:, : flat.shape[1] // _RUN * _RUN].reshape(count, -1, _RUN)
                flat = np.take(whole, runs, axis=1, mode="clip").reshape(count, -1)
            values[:, start:end] = flat
            start = end
        values[:, :start] *= self._factors
        return np.asarray(values.reshape(count, bins, self.dimension).sum(axis=1))


def unit_rows(points: ArrayLike) -> Floats:
    """Return each row at length one, so that only its direction counts; a zero row stays zero."""
    rows = finite_rows(points)
    # First by the largest entry: squares of huge or tiny numbers would not fit.
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    rows = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def _fair_shares(sizes: list[int], total: int) -> list[int]:
    """Return how many coordinates of each layer are looked at, in proportion to the square roots.

    So a large layer shows more than a small one, but less of itself. What a layer does not need
    goes to the larger ones.
    """
    shares, left = [0] * len(sizes), total
    weights = sum(size**0.5 for size in sizes)
    for i in sorted(range(len(sizes)), key=sizes.__getitem__):
        shares[i] = min(sizes[i], max(_RUN, round(left * sizes[i] ** 0.5 / weights)))
        left, weights = max(left - shares[i], 0), weights - sizes[i] ** 0.5
    return shares


def _runs(size: int, share: int, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Return which runs of a layer are looked at, or nothing if it is seen whole."""
    runs, wanted = size // _RUN, -(-share // _RUN)
    if share >= size or wanted >= runs:
        return None
    return np.sort(rng.choice(runs, size=wanted, replace=False)).astype(np.intp)
