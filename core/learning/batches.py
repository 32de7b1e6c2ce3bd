"""Which samples make which mini-batch: seeded by run, client and round.

Samples are shuffled by sorting a hash of their positions. Unlike one random generator per client,
that is one computation for all clients of a round, and gives each the same order in any company.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
