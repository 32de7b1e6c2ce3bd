import numpy as np
from flwr.app import ArrayRecord
from forager.core.wire.arrays import from_record, to_record
from forager.strategies.cohorts.sharing import with_common_body, with_shared_changes


def models(*names: str, **values: float) -> dict[str, ArrayRecord]:
    return {c: to_record({name: np.full(1, x) for name in names}) for c, x in values.items()}


def test_cohorts_share_the_weighted_mean_of_their_bodies_and_keep_their_heads() -> None:
    trained = models("body", "head", a=0.0, b=4.0, c=9.0)
    shared = with_common_body(trained, {"a": 3.0, "b": 1.0}, frozenset(["head"]))
    found = {c: [float(x[0]) for x in from_record(m).values()] for c, m in shared.items()}
    assert found == {"a": [1.0, 0.0], "b": [1.0, 4.0], "c": [1.0, 9.0]}


def test_cohorts_move_by_their_own_change_and_by_the_mean_of_all() -> None:
    before, after = models("w", a=0.0, b=4.0, c=9.0), models("w", a=2.0, b=8.0, c=9.0)
    moved = with_shared_changes(before, after, {"a": 1.0, "b": 1.0}, own=0.5)
    found = {cohort: float(from_record(model)["w"][0]) for cohort, model in moved.items()}
    assert found == {"a": 2.5, "b": 7.5, "c": 12.0}, "also who did not train"
