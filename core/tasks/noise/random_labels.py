"""Corrupted clients: all their labels are random (Auxo, section 7.5)."""

from dataclasses import replace

import numpy as np

from .noisy import Noisy


def wrong_clients(share: float, clients: int) -> frozenset[int]:
    """Return that share of the clients, the same in every run; more of them with a larger share.

    >>> wrong_clients(0.1, 20) < wrong_clients(0.2, 20), len(wrong_clients(0.2, 20))
    (True, 4)
    """
    if not share:
        return frozenset()
    order = np.random.default_rng(0).permutation(clients)
    return frozenset(order[: round(share * clients)].tolist())


def random_labels(data: Noisy, num_classes: int, client: int) -> Noisy:
    """Return a client's samples with labels drawn evenly from all classes.

    >>> data = Noisy(np.zeros((4, 1)), np.zeros(4, int), np.zeros(4, int), np.ones(4, bool))
    >>> noisy = random_labels(data, 5, client=3)
    >>> bool((noisy.clean == (noisy.y == 0)).all())
    True
    """
    labels = np.random.default_rng([client, 17]).integers(0, num_classes, len(data.y))
    return replace(data, y=labels, clean=data.clean & (labels == data.true_labels))
