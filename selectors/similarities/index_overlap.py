"""Index overlap: the similarity of two clients by which parameters matter to them.

*Index-Overlap Similarity: A Value-Free Proxy for Model Relatedness* (IOS), section 3. A client is
represented by its support, the indices of its K most important parameters; two clients are as
similar as their supports overlap. No weight, gradient or activation is compared or sent.

The paper defines the similarity for supports of one size only. Here it is
``|I and J| / sqrt(|I| |J|)``, which is ``|I and J| / K`` for equal sizes and keeps the bound of
Proposition 1 for others. A support is an array of increasing indices.
"""

import operator
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .gram import centred_cosines
from .intersections import intersection_sizes

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_SHARE = 0.05  # of the parameters, in a support
_FEWEST = 200  # indices: the overlap of fewer is mostly noise
_ROUNDING = 1e-12  # of a cumulative sum, relative to the total


def top_k_support(importance: ArrayLike, k: int, layers: Sequence[int] | None = None) -> Indices:
    """Return the indices of the ``k`` most important parameters, increasing.

    - ``importance`` (shape (M,)): one number per parameter, not all zero. Ties go to the lower
      index.
    - ``k``: how many indices, 1 to M.
    - ``layers``: number of parameters of each layer, in order. Each layer then has a share of ``k``
      that is proportional to its size, so that scaling a layer's importance changes nothing.
      Without it, one ranking holds for the whole model.

    >>> top_k_support([0.1, 3.0, 0.2, 3.0, 5.0], k=2)
    array([1, 4])
    >>> top_k_support([0.1, 3.0, 0.2, 3.0, 5.0], k=2, layers=[3, 2])
    array([1, 4])
    >>> top_k_support([0.1, 0.2, 0.3, 3.0, 5.0], k=2, layers=[3, 2])
    array([2, 4])
    """
    values = _checked_importance(importance)
    count = _checked_count("k", k, values.size)
    if layers is None:
        return np.flatnonzero(_largest(values[None], np.array([count]))[0])
    return top_k_supports(values[None], count, layers)[0]


def top_k_supports(
    importance: ArrayLike, k: ArrayLike, layers: Sequence[int] | None = None
) -> list[Indices]:
    """Return :func:`top_k_support` of every row; of a row of zeros, which names none, no index.

    - ``importance`` (shape (n, M)): one row per client.
    - ``k`` (shape (n,)): how many indices, for all or for each.
    - ``layers``: as for :func:`top_k_support`.
    """
    rows = _checked_rows(importance)
    counts = _checked_counts(k, *rows.shape) * rows.any(axis=1)
    if layers is None:
        kept = _largest(rows, counts)
    else:
        sizes = _checked_layers(layers, rows.shape[1])
        shares = [layer_budgets(sizes, count) for count in counts.tolist()]
        ends = np.cumsum(sizes)
        kept = np.empty(rows.shape, dtype=np.bool_)
        for layer, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
            share = np.array([of_layers[layer] for of_layers in shares], dtype=np.int64)
            kept[:, start:end] = _largest(rows[:, start:end], share)
    found = np.flatnonzero(kept) % rows.shape[1]
    ends = np.cumsum(counts)
    return [found[start:end] for start, end in zip(ends - counts, ends, strict=True)]


def layer_budgets(sizes: ArrayLike, k: int) -> Indices:
    """Return how many of ``k`` indices each layer gets: in proportion, largest remainders first."""
    counts = np.asarray(sizes, dtype=np.int64)
    shares, remainders = np.divmod(counts * k, counts.sum())
    left = k - int(shares.sum())
    shares[np.argsort(-remainders, kind="stable")[:left]] += 1
    return np.asarray(shares)


def overlap(a: ArrayLike, b: ArrayLike) -> float:
    """Return the similarity of two supports, from 0 to 1.

    >>> overlap([1, 2, 5], [2, 5, 9])  # 2 of 3
    0.6666666666666666
    >>> overlap([1, 2, 3, 4], [4])  # 1 / sqrt(4 * 1)
    0.5
    """
    first, second = checked_support(a, "a"), checked_support(b, "b")
    common = np.intersect1d(first, second, assume_unique=True).size
    return float(common / np.sqrt(first.size * second.size))


def usual_size(parameters: int, most: int) -> int:
    """Return the default of K: one index in twenty, and enough of them to compare small models.

    >>> usual_size(100_000, most=25_000), usual_size(650, most=162)
    (5000, 162)
    """
    return max(round(_SHARE * parameters), min(_FEWEST, most))


def overlaps_with(reference: ArrayLike, updates: ArrayLike, k: int | None = None) -> Floats:
    """Return the overlap of the ``k`` largest entries of each update with those of a reference.

    By absolute values; zeros are in no support. NaN if an update is not finite.
    """
    rows = np.abs(np.vstack([np.asarray(reference)[None], np.asarray(updates)]))
    finite = np.isfinite(rows).all(axis=1)
    rows[~finite] = 0
    size = rows.shape[1]
    count = usual_size(size, max(1, size // 4)) if k is None else k
    first, *others = top_k_supports(rows, np.minimum(np.maximum(1, (rows > 0).sum(1)), count))
    found = [overlap(first, own) if first.size and own.size else 0.0 for own in others]
    return np.where(finite[1:] & finite[0], found, np.nan)


def overlap_matrix(supports: Iterable[ArrayLike], threads: int | None = None) -> Floats:
    """Return the similarity of all pairs of supports; the diagonal is 1.

    - ``supports``: one per client.
    - ``threads``: how many to count with; as many as there are processors if not given.

    >>> overlap_matrix([[0, 1], [1, 2], [3, 4]])
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    checked = [checked_support(support, f"supports[{i}]") for i, support in enumerate(supports)]
    sizes = np.array([support.size for support in checked], dtype=np.float64)
    return intersection_sizes(checked, threads) / np.sqrt(np.outer(sizes, sizes))


def centred_overlap_matrix(supports: Iterable[ArrayLike], threads: int | None = None) -> Floats:
    """Return how similar clients are by what sets their supports apart from everybody's.

    Indices that matter to everyone do not distinguish clients. From each client's 0/1 support, the
    share of clients that have each index is therefore subtracted; the similarity is the cosine of
    the remainders, between -1 and 1. A support equal to the average is similar to none.

    - ``supports``: one per client.
    - ``threads``: how many to count with; as many as there are processors if not given.

    >>> centred_overlap_matrix([[0, 1], [0, 1], [0, 2], [0, 2]]).round(3).tolist()[0]
    [1.0, 1.0, -1.0, -1.0]
    """
    checked = [checked_support(support, f"supports[{i}]") for i, support in enumerate(supports)]
    return centred_cosines(intersection_sizes(checked, threads))


def stability(supports: Sequence[ArrayLike]) -> float:
    """Return the mean overlap of all pairs of a client's resampled supports, eq. 1."""
    if len(supports) < 2:
        raise ValueError(f"supports: expected two or more to compare, got {len(supports)}")
    pairs = np.triu_indices(len(supports), k=1)
    return float(overlap_matrix(supports)[pairs].mean())


def choose_k(
    importance: ArrayLike,
    coverage: float,
    k_max: int,
    resamples: ArrayLike | None = None,
    stability_target: float = 0.0,
) -> int:
    """Return how many indices represent a client: the fewest that cover enough (Algorithm 1).

    - ``importance`` (shape (M,)): one number from 0 on per parameter, not all zero.
    - ``coverage``: share of the sum of ``importance`` that the support must hold, above 0 up to 1.
      Where ``k_max`` indices do not hold it, the answer is ``k_max``.
    - ``k_max``: the most, 1 to M.
    - ``resamples`` (shape (r, M)): importance estimated again, say from other mini-batches. Of the
      answer and the two sizes above it, the first whose supports are stable enough is then
      returned; if none is, the answer stays.
    - ``stability_target``: what :func:`stability` of the resampled supports must reach.

    >>> choose_k([4.0, 3.0, 2.0, 1.0], coverage=0.7, k_max=4)
    2
    >>> choose_k([4.0, 3.0, 2.0, 1.0], coverage=0.95, k_max=3)
    3
    """
    values = _checked_importance(importance)
    most = _checked_count("k_max", k_max, values.size)
    enough = int(choose_ks(values[None], coverage, most)[0])
    if resamples is None:
        return enough
    estimates = np.asarray(resamples)
    if estimates.ndim != 2 or estimates.shape[1] != values.size:
        raise ValueError(f"resamples: expected rows of {values.size}, got {estimates.shape}")
    for k in range(enough, min(enough + 2, most) + 1):
        if stability(top_k_supports(estimates, k)) >= stability_target:
            return k
    return enough


def choose_ks(importance: ArrayLike, coverage: float, k_max: int) -> Indices:
    """Return :func:`choose_k` of every row, without resamples."""
    rows = _checked_rows(importance)
    if rows.size and rows.min() < 0:
        raise ValueError(f"importance: expected numbers from 0 on, got {rows.min()}")
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage: expected a share above 0 up to 1, got {coverage!r}")
    rest = rows.shape[1] - _checked_count("k_max", k_max, rows.shape[1])
    top = -np.sort(-np.partition(rows, rest, axis=1)[:, rest:], axis=1)
    wanted = coverage * rows.sum(axis=1, dtype=np.float64) * (1 - _ROUNDING)
    short = np.cumsum(top, axis=1, dtype=np.float64) < wanted[:, None]
    chosen: Indices = np.minimum(np.count_nonzero(short, axis=1) + 1, k_max)
    return chosen


def checked_support(support: ArrayLike, name: str = "support") -> Indices:
    """Return a set of indices as an increasing array; anything else is an error."""
    array = np.asarray(support)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: expected one or more whole numbers, got {array.dtype} of shape {array.shape}"
        )
    indices = array.astype(np.int64, copy=False)
    if not np.all(indices[1:] > indices[:-1]):
        indices = np.sort(indices)
        if np.any(indices[1:] == indices[:-1]):
            raise ValueError(f"{name}: expected no index twice")
    if indices[0] < 0:
        raise ValueError(f"{name}: expected indices from 0 on, got {indices[0]}")
    return indices


def _largest(rows: NDArray[np.floating], counts: Indices) -> NDArray[np.bool_]:
    """Return which are the largest values of each row, so many; of equals, the first ones."""
    cuts = np.minimum(rows.shape[1] - counts, rows.shape[1] - 1)
    one = len(set(cuts.tolist())) == 1  # to sort is faster than to cut at many places
    ordered = np.partition(rows, cuts[0], axis=1) if one else np.sort(rows, axis=1)
    thresholds = ordered[np.arange(len(rows)), cuts][:, None]
    kept = rows >= thresholds
    torn = np.flatnonzero(np.count_nonzero(kept, axis=1) > counts)  # ties, or nothing is wanted
    if torn.size:
        ties = rows[torn] == thresholds[torn]
        spare = counts[torn] - np.count_nonzero(kept[torn] & ~ties, axis=1)
        kept[torn] &= ~ties | (np.cumsum(ties, axis=1) <= spare[:, None])
    return np.asarray(kept)


def _checked_importance(importance: ArrayLike) -> NDArray[np.floating]:
    array = np.asarray(importance)
    if array.ndim != 1:
        raise ValueError(f"importance: expected one number per parameter, got {array.shape}")
    values: NDArray[np.floating] = _checked_rows(array[None])[0]
    if not values.any():
        raise ValueError("importance: expected some above 0, got only zeros, which name no support")
    return values


def _checked_rows(importance: ArrayLike) -> NDArray[np.floating]:
    array = np.asarray(importance)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.ndim != 2 or array.dtype.kind != "f":
        raise ValueError(
            f"importance: expected one number per parameter, got {array.dtype} of {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError("importance: expected finite numbers")
    return array


def _checked_count(name: str, value: int, parameters: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected a whole number, got {value!r}") from None
    if not 1 <= count <= parameters:
        raise ValueError(f"{name}: expected 1 to {parameters}, the parameters, got {count}")
    return count


def _checked_counts(k: ArrayLike, rows: int, parameters: int) -> Indices:
    counts = np.asarray(k)
    if counts.shape not in ((), (rows,)) or counts.dtype.kind not in "iu":
        raise ValueError(f"k: expected a whole number, or one per row, got {k!r}")
    for count in np.unique(counts).tolist():
        _checked_count("k", count, parameters)
    return np.broadcast_to(counts, (rows,)).astype(np.int64)


def _checked_layers(layers: Sequence[int], parameters: int) -> Indices:
    sizes = np.asarray(layers, dtype=np.int64)
    if sizes.ndim != 1 or (sizes < 1).any() or sizes.sum() != parameters:
        raise ValueError(f"layers: expected sizes that sum to {parameters}, got {list(layers)}")
    return sizes
