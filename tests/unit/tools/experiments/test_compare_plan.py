"""Who is trained for how long, and what that costs."""

import math

import pytest
from forager.core.config import ConfigError
from forager.core.methods.catalogue import presets
from forager.tools.experiments.compare.budget import Budget, plan, survivors, total_cost
from forager.tools.experiments.compare.candidates import (
    CandidateError,
    check,
    parse_candidates,
)


def test_ten_strategies_cost_about_what_three_would() -> None:
    for amount in (60, 100, 500):
        budget = Budget("rounds", amount)
        assert total_cost(plan(budget, 10)) <= 3.2 * amount
        assert total_cost(plan(budget, 10, halving=False)) == 10 * amount
    assert total_cost(plan(Budget("bytes", 9e6), 10)) == pytest.approx(28e6)


def test_stages_end_with_an_evaluation_and_are_not_too_short() -> None:
    stages = plan(Budget("rounds", 300), 10, every=3)
    assert [stage.budget.amount for stage in stages] == [33.0, 99.0, 300.0]
    # Two rounds of training say nothing: all get six.
    assert [(s.budget.amount, s.candidates) for s in plan(Budget("rounds", 20), 10)] == [
        (6.0, 10),
        (20.0, 3),
    ]
    assert [s.candidates for s in plan(Budget("rounds", 4), 10)] == [10]
    assert len(plan(Budget("rounds", 100), 3)) == 1


def test_the_baseline_stays_and_what_failed_does_not() -> None:
    scores = {"a": 0.9, "base": 0.1, "b": 0.8, "c": math.nan}
    assert survivors(scores, 2, "base") == ["a", "base"]
    assert survivors(scores, 3, "base") == ["a", "base", "b"]
    assert survivors(scores | {"base": math.nan}, 2, "base") == ["a", "b"]


def test_all_means_every_preset_that_can_run() -> None:
    candidates = parse_candidates(["all"])
    assert [candidate.name for candidate in candidates] == list(presets())
    check(candidates, {"num-clients": 20})


def test_wrong_names_and_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(CandidateError, match="each needs its own name"):
        parse_candidates(["fedavg", "fedavg: client-selector='aoi'"])
    with pytest.raises(ConfigError, match="client-selector = 'oldest': unknown"):
        check(parse_candidates(["mine: client-selector='oldest'"]), {})
