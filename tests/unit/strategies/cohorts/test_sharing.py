"""What cohorts have in common: a body under their own heads, or what all clients learn."""

import numpy as np
from flwr.app import ArrayRecord
from forager.core.wire.arrays import from_record, to_record
from forager.strategies.cohorts.sharing import with_common_body, with_shared_changes


def models(*names: str, **values: float) -> dict[str, ArrayRecord]:
    return {
        cohort: to_record({name: np.full(1, value) for name in names})
        for cohort, value in values.items()
    }


def test_a_body_is_the_weighted_mean_and_heads_stay() -> None:
    given = models("body", "head", a=0.0, b=4.0, c=9.0)
    shared = with_common_body(given, {"a": 3.0, "b": 1.0}, frozenset(["head"]))
    found = {c: [float(x[0]) for x in from_record(m).values()] for c, m in shared.items()}
    assert found == {"a": [1.0, 0.0], "b": [1.0, 4.0], "c": [1.0, 9.0]}


def test_a_cohort_moves_by_its_own_change_and_by_everybody_s() -> None:
    before, after = models("w", a=0.0, b=4.0), models("w", a=2.0, b=8.0)
    moved = with_shared_changes(before, after, {"a": 1.0, "b": 1.0}, own=0.5)
    found = {cohort: float(from_record(model)["w"][0]) for cohort, model in moved.items()}
    assert found == {"a": 2.5, "b": 7.5}
