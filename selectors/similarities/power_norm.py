"""The power-norm cosine: the one number with which CosAge summarises an update.

Asgari, Rini, Munari: *CosAge: Federated Learning with Gradient Summaries for Centralized Client
Selection*, eq. 7-9. The paper uses p = 4, which weighs the dominant entries more than p = 2 does.

As printed, the equations depend on the scale: the inner product (eq. 9) grows with the norm, the
denominator (eq. 8) with its square, so that ``cos(u, u) = 1 / (2 ||u||)`` and a client with large
gradients scores close to 0 whatever their direction. The default form therefore divides each vector
by its p-norm first, and squares the norms of eq. 9 (the polarisation identity). It lies in [-1, 1],
ignores either scale, is 1 for equal and -1 for opposite directions, and the cosine for p = 2.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FORMS = ("unit", "printed")


def power_cosine(u: ArrayLike, v: ArrayLike, p: float = 4.0, form: str = "unit") -> Any:
    """Return the similarity of an update to a reference, eq. 8 and 9.

    All arithmetic is in float64 on vectors scaled by their largest entry, so nothing overflows or
    vanishes, however large or small the entries.

    Parameters
    ----------
    u : array, shape (d,)
        The reference: the previous global update.
    v : array, shape (d,) or (n, d)
        An update, or one in each row.
    p : float
        Which norm, at least 1.
    form : {"unit", "printed"}
        Scale-free in [-1, 1], or eq. 8 and 9 to the letter (see the top of this file).

    Returns
    -------
    float, or array of shape (n,) if ``v`` has rows
        0 where a vector is zero. NaN, which selectors read as "unknown", where one is not finite:
        a broken row leaves the others as they are.

    Examples
    --------
    >>> power_cosine([1, 2, 3], [[2, 4, 6], [-1, -2, -3], [0, 0, 0]]).tolist()
    [1.0, -1.0, 0.0]
    >>> round(power_cosine([1, 2, 3], [3, 2, 1], p=2), 4)  # the cosine
    0.7143
    >>> round(power_cosine([1, 2, 3], [3, 2, 1], p=2, form="printed"), 4)
    0.0732
    """
    if form not in FORMS:
        raise ValueError(f"form: expected one of {FORMS}, got {form!r}")
    if not p >= 1:
        raise ValueError(f"p: expected a number from 1 on, got {p!r}")
    reference, updates = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
    if reference.ndim != 1:
        raise ValueError(f"u: expected one vector, got shape {reference.shape}")
    if updates.ndim not in (1, 2) or updates.shape[-1] != reference.size:
        raise ValueError(f"v: expected vectors of length {reference.size}, got {updates.shape}")
    score = _unit_form if form == "unit" else _printed_form
    with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite become NaN
        values = score(reference, np.atleast_2d(updates), p)
    finite = np.isfinite(reference).all() & np.isfinite(np.atleast_2d(updates)).all(axis=1)
    values = np.where(finite, values, np.nan)
    return values if updates.ndim == 2 else float(values[0])


def _unit_form(u: Floats, rows: Floats, p: float) -> Floats:
    """Return (||u+v||^2 - ||u-v||^2) / 4 of vectors of p-norm 1."""
    u, rows = _directions(u, p), _directions(rows, p)
    values: Floats = (_norm(rows + u, p) ** 2 - _norm(rows - u, p) ** 2) / 4
    return np.clip(values, -1.0, 1.0)  # what rounding may exceed


def _printed_form(u: Floats, rows: Floats, p: float) -> Floats:
    """Return (||u+v|| - ||u-v||) / (4 ||u|| ||v||), brought to a common scale to be safe."""
    top_u, top_rows = _largest(u), _largest(rows)
    scale = _or_one(np.maximum(top_u, top_rows))[:, None]
    inner = (_norm(rows / scale + u / scale, p) - _norm(rows / scale - u / scale, p)) / 4
    sizes = _norm(u / _or_one(top_u), p) * _norm(rows / _or_one(top_rows)[:, None], p)
    # scale / (top_u * top_rows), of which the larger one cancels
    return inner / _or_one(sizes) / _or_one(np.minimum(top_u, top_rows))


def _directions(x: Floats, p: float) -> Floats:
    """Return vectors divided by their p-norms; zero stays zero."""
    scaled = x / _or_one(_largest(x))[..., None]
    unit: Floats = scaled / _or_one(_norm(scaled, p))[..., None]
    return unit


def _largest(x: Floats) -> Floats:
    """Return the largest absolute entry of each vector."""
    return np.asarray(np.max(np.abs(x), axis=-1, initial=0.0))


def _or_one(x: Floats) -> Floats:
    """Return divisors that are never zero: where one is, so is what it divides."""
    return np.where(x == 0, 1.0, x)


def _norm(x: Floats, p: float) -> Floats:
    """Return the p-norms of vectors whose entries are about 1 at most."""
    if np.isinf(p):
        return _largest(x)
    # A square is many times faster than the general power, and clients compute this every round.
    powers = np.square(x) if p in (2, 4) else np.abs(x) ** p
    sums = np.einsum("...i,...i->...", powers, powers) if p == 4 else powers.sum(axis=-1)
    return np.asarray(sums ** (1 / p))
