"""What cohorts have in common, among a few of which only some have trained."""

from typing import Any

import numpy as np
from forager.core.wire.arrays import from_record, to_record
from forager.strategies.cohorts.cohort_models import CohortModels


def test_two_cohorts_share_what_one_of_them_learnt() -> None:
    nothing: Any = lambda: None  # noqa: E731 what trains them does not matter
    cohorts = CohortModels(nothing, share_changes=True)
    before = {name: to_record({"w": np.zeros(1)}) for name in "ab"}
    cohorts.models = before | {"a": to_record({"w": np.full(1, 4.0)})}
    cohorts.share(before, {"a": 3.0, "b": 0.0}, part=1.0)
    assert [float(from_record(cohorts.models[name])["w"][0]) for name in "ab"] == [4.0, 0.0]
    cohorts.share(before, {"a": 3.0, "b": 0.0}, part=0.0)
    assert [float(from_record(cohorts.models[name])["w"][0]) for name in "ab"] == [4.0, 4.0]
    shared = cohorts.models
    cohorts.share(before, {"a": 0.0, "b": 0.0}, part=1.0)
    assert cohorts.models is shared, "nobody trained"
