"""Corrupted clients: all their labels are random (Auxo, section 7.5)."""

from dataclasses import replace

import numpy as np

from .noisy import Noisy


def wrong_clients(share: float, clients: int) -> frozenset[int]:
    """Return that share of the clients, the same in every run; more of them with a larger share."""
    if not share:
        return frozenset()
    order = np.random.default_rng(0).permutation(clients)
    return frozenset(order[: round(share * clients)].tolist())


def random_labels(data: Noisy, num_classes: int, client: int) -> Noisy:
    """Return a client's samples with labels drawn evenly from all classes."""
    labels = np.random.default_rng([client, 17]).integers(0, num_classes, len(data.y))
    return replace(data, y=labels, clean=data.clean & (labels == data.true_labels))
