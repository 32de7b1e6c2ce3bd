"""Which clients store samples of which labels: the coordination of ODE.

Gong et al.: *To Store or Not? Online Data Selection for Federated Learning with Limited Storage*,
section 3.3. The server knows the velocity of every label on every client and the clients' storage.
It

1. assigns each label, those of few clients first, to the clients where it arrives fastest, until
   enough clients hold it; it passes over clients that already have as many labels as allowed;
2. assigns to a client without any label those that arrive fastest there;
3. divides the storage of a client among its labels;
4. weights the labels: the weighted stored samples have the global distribution (eq. 11).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_SOFTNESS = 0.1  # of the matched split, as a share of the mean velocity of what is assigned
_TIE = 1e-9  # velocities that differ by at most this share count as equal
_CLOSE_TO_WHOLE = 1e-6
_STEPS, _CLOSE = 50, 0.01  # of its prices: at most this many, and when the labels' shares are right


@dataclass(frozen=True)
class Coordination:
    """Who stores what."""

    # How many samples of each label a client stores (D of eq. 9). (shape (clients, labels))
    quota: Ints
    # Weight of a stored sample of each label (gamma of eq. 11); 0 where none is stored. (shape
    # (labels,))
    class_weights: Floats


def coordinate(
    velocity: ArrayLike,
    storage: ArrayLike,
    clients_per_label: ArrayLike = 5,
    labels_per_client: ArrayLike | None = None,
    quantities: str = "even",
    cover: bool = False,
    *,
    client_weights: str = "stored",
    held: ArrayLike | None = None,
    loyalty: float = 0.0,
) -> Coordination:
    """Return how many samples of each label each client stores, and their weights.

    Only labels that arrive at a client are given to it; a client without storage gets none. A label
    is stored nowhere if all its clients have as many labels as they may or fewer places than labels
    (which happens in small federations), unless ``cover`` is set.

    - ``velocity`` (shape (clients, labels)): samples of each label that arrive at each client per
      round (V).
    - ``storage`` (shape (clients,)): samples that each client can store (|B_c|).
    - ``clients_per_label`` (shape (labels,)): clients that a label is given to in the first pass,
      if there are enough.
    - ``labels_per_client`` (shape (clients,)): most labels that a client is given; all by default.
    - ``quantities``: how a client divides its storage among its labels: "even" as in the paper,
      with what is left over for its faster labels; "balanced" as even, with what is left over for
      the labels that all clients together store too little of, by eq. 9d; "proportional" to its own
      velocities, rounded so that labels keep their shares over all clients; "matched" close to the
      best solution of eq. 10, which prefers fast labels as far as the global distribution allows.
    - ``cover``: give a label that would be stored nowhere the places of another label of one of its
      clients, where that one is stored by others too.
    - ``client_weights``: what clients count for when their models are averaged: "stored", the
      weights of what they store (eq. 12), or "velocity", how much arrives there. Labels are
      weighted accordingly.
    - ``held`` (shape (clients, labels)): quota of the plan before this one.
    - ``loyalty``: a label stays where it is held, unless it is faster elsewhere by more than this
      share.

    Label 1 has the fewest owners and goes first.

    >>> velocity = [[6.0, 0.0, 3.0], [4.0, 2.0, 0.0], [5.0, 0.0, 1.0]]
    >>> plan = coordinate(velocity, [4, 4, 5], clients_per_label=1, labels_per_client=2)
    >>> plan.quota.tolist()  # the last client was left without a label
    [[2, 0, 2], [0, 4, 0], [3, 0, 2]]
    >>> plan.class_weights.round(2).tolist()
    [1.86, 0.31, 0.62]
    """
    speeds = _velocities(velocity)
    clients, labels = speeds.shape
    places = _counts("storage", storage, clients, least=0)
    per_label = _counts("clients_per_label", clients_per_label, labels, least=1)
    limit = labels if labels_per_client is None else labels_per_client
    per_client = _counts("labels_per_client", limit, clients, least=0 if not labels else 1)
    ranked, kept = speeds, np.zeros(speeds.shape, dtype=np.bool_)
    if held is not None:
        kept = np.asarray(held) > 0
        if kept.shape != speeds.shape:
            raise ValueError(f"held: expected shape {speeds.shape}, got {kept.shape}")
        ranked = speeds * np.where(kept, 1.0 + max(loyalty, _TIE), 1.0)
    assigned = _assign(ranked, places, per_label, per_client)
    if quantities == "even":
        quota = _even(assigned, ranked, places)
    elif quantities == "balanced":
        quota = _balanced(assigned, speeds, places, kept)
    elif quantities == "proportional":
        quota = _proportional(assigned, speeds, places, kept)
    elif quantities == "matched":
        quota = _matched(assigned, speeds, ranked, places, kept)
    else:
        known = "'even', 'balanced', 'proportional' or 'matched'"
        raise ValueError(f"quantities: expected {known}, got {quantities!r}")
    if cover:
        _cover(quota, (speeds > 0) & (places > 0)[:, None], speeds)
    return Coordination(quota, class_weights(speeds, quota, client_weights))


def class_weights(velocity: ArrayLike, quota: ArrayLike, client_weights: str = "stored") -> Floats:
    """Return the weight of every label: its share of what arrives over its share of the storage.

    That is eq. 11; with all places taken the weights of all stored samples add up to their number.
    Where clients count by velocity, so do their shares of the storage.
    """
    if client_weights not in ("stored", "velocity"):
        raise ValueError(f"client_weights: expected 'stored' or 'velocity', got {client_weights!r}")
    speeds, places = np.asarray(velocity, dtype=np.float64), np.asarray(quota, dtype=np.float64)
    if client_weights == "velocity":
        places = places * (speeds.sum(axis=1) / np.maximum(places.sum(axis=1), 1.0))[:, None]
    arriving, stored = speeds.sum(axis=0), places.sum(axis=0)
    total = arriving.sum() or 1.0
    weights = np.zeros(stored.shape)
    np.divide(arriving / total * stored.sum(), stored, out=weights, where=stored > 0)
    return weights


def _assign(velocity: Floats, storage: Ints, per_label: Ints, per_client: Ints) -> Mask:
    """Return which labels each client stores (S of eq. 10)."""
    owns = (velocity > 0) & (storage > 0)[:, None]
    assigned = np.zeros(velocity.shape, dtype=np.bool_)
    taken = np.zeros(len(velocity), dtype=np.int64)
    for label in np.argsort(owns.sum(axis=0), kind="stable"):
        free = np.flatnonzero(owns[:, label] & (taken < per_client))
        fastest = free[np.argsort(-velocity[free, label], kind="stable")]
        chosen = fastest[: per_label[label]]
        assigned[chosen, label] = True
        taken[chosen] += 1
    left = np.flatnonzero(taken == 0)
    ranks = _ranks(velocity[left])
    assigned[left] = owns[left] & (ranks < per_client[left][:, None])
    return assigned


def _even(assigned: Mask, velocity: Floats, storage: Ints) -> Ints:
    """Return equal parts of each client's storage, the remainder for its faster labels."""
    part, rest = np.divmod(storage, np.maximum(assigned.sum(axis=1), 1))
    first = _ranks(np.where(assigned, velocity, -1.0)) < rest[:, None]
    quota: Ints = np.where(assigned, part[:, None] + first, 0)
    return quota


def _balanced(assigned: Mask, velocity: Floats, storage: Ints, kept: Mask) -> Ints:
    """Return equal parts of each client's storage, the remainder where eq. 9d lacks most.

    With fewer places than labels the remainder is all there is: if it went to the faster labels, a
    label that is slow everywhere would be stored nowhere. Clients take turns; each gives one place
    more to those of its labels that are the furthest below their share of all places; first to
    those that it held before, where these still lack a place.
    """
    part, rest = np.divmod(storage, np.maximum(assigned.sum(axis=1), 1))
    quota: Ints = np.where(assigned, part[:, None], 0)
    rest[~assigned.any(axis=1)] = 0
    wanted = velocity.sum(axis=0) / (velocity.sum() or 1.0) * (quota.sum() + rest.sum())
    lacking = wanted - quota.sum(axis=0)
    # Clients with few labels have the least choice and go first.
    for client in np.argsort(assigned.sum(axis=1), kind="stable"):
        own = np.flatnonzero(assigned[client])
        stays = kept[client, own] & (lacking[own] >= 0.5)
        order = np.lexsort((-velocity[client, own], -lacking[own], ~stays))
        given = own[order[: rest[client]]]
        quota[client, given] += 1
        lacking[given] -= 1
    return quota


def _proportional(assigned: Mask, velocity: Floats, storage: Ints, kept: Mask) -> Ints:
    """Return parts of each client's storage as large as the labels' shares of what arrives."""
    speeds = np.where(assigned, velocity, 0.0)
    totals = speeds.sum(axis=1)
    places = np.where(totals > 0, storage, 0)
    parts = speeds * (places / np.maximum(totals, np.finfo(np.float64).tiny))[:, None]
    return _rounded(parts, places, velocity, kept)


def _matched(assigned: Mask, velocity: Floats, ranked: Floats, storage: Ints, kept: Mask) -> Ints:
    """Return whole parts of each client's storage that nearly solve eq. 10.

    A client divides its storage by a softmax of velocity minus price, and the price of a label
    rises while more than its global share is stored (Sinkhorn's iteration). As its softness goes to
    zero the division goes to a solution of the linear program. ``ranked`` are velocities that count
    for more where a label is held.
    """
    holders = np.flatnonzero(assigned.any(axis=1))
    parts = np.zeros(assigned.shape)
    if holders.size:
        gains = ranked[holders] / (_SOFTNESS * velocity[assigned].mean())
        gains[~assigned[holders]] = -np.inf
        places, share = storage[holders], velocity.sum(axis=0) / velocity.sum()
        soft = _priced(gains.astype(np.float32), places, places.sum() * share).astype(np.float64)
        parts[holders] = soft * (places / soft.sum(axis=1))[:, None]
    return _rounded(parts, np.where(assigned.any(axis=1), storage, 0), velocity, kept)


def _rounded(parts: Floats, places: Ints, velocity: Floats, kept: Mask) -> Ints:
    """Return whole numbers close to parts, with the same sums for clients and nearly for labels.

    The rounding error of a label passes to the next client. If each client rounded by itself, all
    would drop the same labels. A label that was held before stays where it is while it still lacks
    a place.
    """
    whole: Ints = np.floor(parts + _CLOSE_TO_WHOLE).astype(np.int64)
    rest, missing = parts - whole, places - whole.sum(axis=1)
    lacking = np.zeros(parts.shape[1])
    for client in np.flatnonzero(places):
        lacking += rest[client]
        own = np.flatnonzero(parts[client] > _CLOSE_TO_WHOLE)
        stays = kept[client, own] & (lacking[own] >= 0.5)
        order = np.lexsort((-velocity[client, own], -lacking[own], ~stays))
        given = own[order[: missing[client]]]
        whole[client, given] += 1
        lacking[given] -= 1
    return whole


def _priced(gains: NDArray[np.float32], places: Ints, wanted: Floats) -> NDArray[np.float32]:
    """Return the softmax division at the prices that bring the labels' totals to the wanted."""
    prices = np.zeros(wanted.shape, dtype=np.float32)
    for _ in range(_STEPS):
        parts = gains - prices
        parts -= parts.max(axis=1, keepdims=True)
        np.exp(parts, out=parts)
        parts *= (places / parts.sum(axis=1))[:, None]
        stored = parts.sum(axis=0, dtype=np.float64)
        if np.abs(stored - wanted).sum() <= _CLOSE * places.sum():
            break
        known = (stored > 0) & (wanted > 0)
        prices[known] += np.log(stored[known] / wanted[known])
    return parts


def _cover(quota: Ints, owns: Mask, velocity: Floats) -> None:
    """Give every label without a place all places of one client's label that others store too."""
    totals = quota.sum(axis=0)
    for label in np.flatnonzero(owns.any(axis=0) & (totals == 0)):
        spare = np.where((quota > 0) & (totals > quota), totals, 0)
        able = np.flatnonzero(owns[:, label] & spare.any(axis=1))
        if able.size:
            client = able[np.argmax(velocity[able, label])]
            giver = np.argmax(spare[client])
            places = quota[client, giver]
            quota[client, [giver, label]] = 0, places
            totals[[giver, label]] += -places, places


def _ranks(values: Floats) -> Ints:
    """Return the rank of each value in its row, the largest 0; ties to the lower column."""
    order = np.argsort(-values, axis=1, kind="stable")
    ranks = np.empty(values.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(values.shape[1])[None], axis=1)
    return ranks


def _velocities(velocity: ArrayLike) -> Floats:
    speeds = np.asarray(velocity, dtype=np.float64)
    if speeds.ndim != 2:
        raise ValueError(f"velocity: expected one row per client, got shape {speeds.shape}")
    if not (np.isfinite(speeds) & (speeds >= 0)).all():
        raise ValueError("velocity: expected finite numbers of 0 or more, found others")
    return speeds


def _counts(name: str, values: ArrayLike, size: int, least: int) -> Ints:
    counts = np.asarray(values)
    if counts.shape not in ((), (size,)):
        raise ValueError(f"{name}: expected {size} values, got shape {counts.shape}")
    if counts.size and (counts.dtype.kind not in "iu" or counts.min() < least):
        raise ValueError(f"{name}: expected whole numbers of {least} or more, got {values!r}")
    return np.broadcast_to(counts, (size,)).astype(np.int64)
