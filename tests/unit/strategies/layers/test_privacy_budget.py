"""A privacy budget: nobody's is exceeded, and the run ends when all are used up."""

import json
from typing import Any

import pytest
from forager.core.config import ConfigError, read_config
from forager.strategies.build import build_strategy
from forager.strategies.federation.accountant import gaussian_epsilon, releases_within
from forager.tools.engine.local import run_local
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def small(tmp_path: Any) -> dict[str, Any]:
    return {
        "output-dir": str(tmp_path / "runs"),
        "num-clients": 6,
        "clients-per-round": 4,
        "num-server-rounds": 40,
        "evaluate-every": 7,
        "local-steps": 1,
        "model": "softmax",
        "dp.clip": 0.05,
        "dp.noise-multiplier": 16.0,
        "dp.budget": 1.0,
    }


def events(result: Any, kind: str) -> list[dict[str, Any]]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@settings(deadline=None, max_examples=25)
@given(st.floats(0.2, 20), st.floats(0.5, 50), st.floats(1e-8, 1e-2))
def test_as_many_releases_as_the_budget_allows(
    budget: float, multiplier: float, delta: float
) -> None:
    most = releases_within(budget, delta, multiplier)
    assert gaussian_epsilon(delta, multiplier, most) <= budget * (1 + 1e-6)
    assert gaussian_epsilon(delta, multiplier, most + 1) > budget * (1 - 1e-6)


def test_with_local_noise_clients_leave_one_by_one(small: dict[str, Any], said: list[str]) -> None:
    result = run_local({**small, "privacy": "local-dp"}, quiet=False)
    most = releases_within(1.0, 1e-5, 8.0)
    (end,) = events(result, "run-finished")
    chosen = [key for e in events(result, "selected") for key in e["chosen"]]
    assert {chosen.count(key) for key in chosen} == {most}, "everybody's budget is used, not more"
    assert result.reason == "completed"
    assert end["rounds"] < 40
    assert end["message"].startswith("dp.budget = 1 is used up")
    assert events(result, "evaluated")[-1]["round"] == end["rounds"], "the last model is judged"
    assert any("dp.budget = 1 is used up" in line for line in said)
    last = events(result, "privacy")[-1]
    assert last["epsilon-most"] <= last["budget"] == 1.0
    spent = gaussian_epsilon(1e-5, 8.0, most)
    report = (result.folder / "report.html").read_text()
    assert f"epsilon {spent:.2f} of a budget of 1 at delta 1e-05" in report


def test_with_central_noise_all_have_one_budget_also_after_a_resume(small: dict[str, Any]) -> None:
    keys = {**small, "privacy": "central-dp"}
    most = releases_within(1.0, 1e-5, 8.0)
    short = run_local({**keys, "num-server-rounds": 2})
    result = run_local({**keys, "resume-from": str(short.folder)})
    assert events(result, "run-finished")[-1]["rounds"] == most
    again = run_local({**keys, "resume-from": str(result.folder)})
    assert again.reason == "completed"
    assert len(events(again, "privacy")) == most, "nothing more is released"


def test_a_budget_that_no_round_can_keep_is_refused() -> None:
    config = read_config({"privacy": "local-dp", "dp.budget": 1.0})
    with pytest.raises(ConfigError, match=r"dp.budget = 1.0: a single round spends 9.997 .*raise"):
        build_strategy(config)


def test_a_budget_without_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dp.budget = 1.0: needs noise; .*local-dp, central-dp"):
        read_config({"dp.budget": 1.0})
