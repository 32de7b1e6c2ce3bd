"""How evenly a model serves its clients."""

from collections.abc import Iterable

import numpy as np
from flwr.app import MetricRecord

_ABSURD = 1e12


def accuracy_spread(metrics: Iterable[MetricRecord]) -> dict[str, float]:
    """Return mean, worst and best tenth, and variance of the clients' accuracies.

    Every client counts the same, however much data it has. Values that are missing or not finite
    are left out.

    >>> records = [MetricRecord({"accuracy": i / 10, "loss": 1.0}) for i in range(11)]
    >>> spread = accuracy_spread(records)
    >>> spread["accuracy-mean"], spread["accuracy-worst-10"], spread["accuracy-best-10"]
    (0.5, 0.0, 1.0)
    """
    pairs = [(record.get("accuracy"), record.get("loss")) for record in metrics]
    values = np.array(
        [pair for pair in pairs if all(isinstance(v, int | float) for v in pair)], float
    )
    if len(values):  # an accuracy is a share; a loss that large is a lie
        sound = np.isfinite(values).all(axis=1) & (np.abs(values[:, 1]) < _ABSURD)
        values = values[sound & (values[:, 0] >= 0) & (values[:, 0] <= 1)]
    if not len(values):
        return {}
    accuracies = np.sort(values[:, 0])
    tenth = max(1, round(len(accuracies) / 10))
    return {
        "accuracy-mean": float(accuracies.mean()),
        "accuracy-worst-10": float(accuracies[:tenth].mean()),
        "accuracy-best-10": float(accuracies[-tenth:].mean()),
        "accuracy-variance": float(accuracies.var()),
        "loss-mean": float(values[:, 1].mean()),
        "clients": len(accuracies),
    }
