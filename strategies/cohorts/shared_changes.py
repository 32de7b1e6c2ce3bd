"""Cohorts that learn from each other: each goes its own way only as far as its members show it.

A cohort's own change is a noisy estimate if few of its members took part, and a small cohort has
little data to learn from. So a cohort takes over its own change with a weight, the squared share of
the clients that trained, and for the rest the change of all clients together. With weight 0 all
cohorts are one model; with weight 1, everybody in every round, they have nothing in common.
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord

from ...core.wire.arrays import from_record, to_record


def with_shared_changes(
    before: Mapping[str, ArrayRecord],
    after: Mapping[str, ArrayRecord],
    weights: Mapping[str, float],
    own: float,
) -> dict[str, ArrayRecord]:
    """Return cohorts' models, moved by their own change and by everybody's.

    ``weights`` say how much the change of each cohort that trained counts in everybody's, at least
    one above 0; ``own`` is the weight of a cohort's own change, from 0 to 1. Those that did not
    train have none.

    Examples
    --------
    >>> def models(a, b):
    ...     return {c: to_record({"w": np.full(1, x)}) for c, x in (("a", a), ("b", b))}
    >>> before, after = models(0.0, 4.0), models(2.0, 8.0)
    >>> moved = with_shared_changes(before, after, {"a": 1.0, "b": 1.0}, own=0.5)
    >>> {cohort: float(from_record(model)["w"][0]) for cohort, model in moved.items()}
    {'a': 2.5, 'b': 7.5}
    """
    old, new = ({c: from_record(m) for c, m in models.items()} for models in (before, after))
    total = sum(weights.values())
    moved: dict[str, dict[str, np.ndarray]] = {cohort: {} for cohort in old}
    for name in next(iter(old.values())):
        changes = {cohort: new[cohort][name] - old[cohort][name] for cohort in weights}
        common = sum(weights[cohort] / total * changes[cohort] for cohort in weights)
        for cohort, arrays in old.items():
            share = own if cohort in changes else 0.0
            change = share * changes.get(cohort, 0.0) + (1.0 - share) * common
            moved[cohort][name] = (arrays[name] + change).astype(arrays[name].dtype)
    return {cohort: to_record(arrays) for cohort, arrays in moved.items()}
