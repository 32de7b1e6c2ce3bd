"""The clipped mean and FLTrust."""

import json
from typing import Any

import numpy as np
import pytest
from forager.benchmarks.attacks import UPDATES
from forager.core.config import ConfigError, read_config
from forager.strategies.aggregation.clipped_mean import clipped_mean
from forager.strategies.aggregation.fltrust import trusted_mean
from forager.tools.engine.local import run_local
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

ROWS = arrays(np.float64, (5, 3), elements=st.integers(-100, 100))
OURS = ["clipped-mean", "fltrust"]


@pytest.fixture
def small(tmp_path: Any) -> dict[str, Any]:
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "client-selector": "all",
        "partition": "iid",
        "num-server-rounds": 4,
        "model": "softmax",
        "checkpoint.keep": 9,
    }


@given(ROWS, st.integers(0, 4), arrays(np.float64, 5, elements=st.floats(1, 9)))
def test_one_update_moves_the_clipped_mean_by_at_most_its_share(
    updates: Any, liar: int, weights: Any
) -> None:
    others = np.delete(np.linalg.norm(updates, axis=1), liar)
    updates[liar] *= 1e6
    without = clipped_mean(np.where(np.arange(5)[:, None] == liar, 0.0, updates), weights)
    moved = np.linalg.norm(clipped_mean(updates, weights) - without)
    # The median of all is at most the upper one of the others; their clip may change with it.
    assert moved <= others.max() + 1e-6


def test_updates_of_one_length_give_the_weighted_mean() -> None:
    updates, weights = np.eye(3), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(clipped_mean(updates, weights), weights / 6)
    claimed = clipped_mean(updates, np.array([1.0, 2.0, 500.0]))
    np.testing.assert_allclose(claimed, [1 / 7, 2 / 7, 4 / 7], err_msg="twice the median at most")
    assert not clipped_mean(np.zeros((3, 2)), weights[:3]).any()


@given(ROWS, arrays(np.float64, 3, elements=st.integers(-100, 100)))
def test_what_is_trusted_is_no_longer_than_the_reference_and_never_opposes_it(
    updates: Any, reference: Any
) -> None:
    found = trusted_mean(updates, reference)
    length = np.linalg.norm(reference)
    assert np.linalg.norm(found) <= length * (1 + 1e-9)
    assert found @ reference >= -1e-9 * length


def test_where_nobody_is_trusted_the_server_goes_its_own_way() -> None:
    reference = np.array([1.0, 0.0])
    np.testing.assert_array_equal(trusted_mean(-np.eye(2), reference), reference)


def accuracy(result: Any) -> float:
    return float(result.rounds[-1]["accuracy"])


@pytest.mark.parametrize("aggregator", OURS)
def test_a_run_withstands_attackers_that_ruin_the_mean(small: Any, aggregator: str) -> None:
    attack = UPDATES["flipped and boosted ten times"]
    assert attack is not None
    small["quarantine.norm-factor"] = 1e6
    honest = accuracy(run_local({**small, "aggregator": aggregator}))
    with attack():
        mean = accuracy(run_local(small))
        ours = accuracy(run_local({**small, "aggregator": aggregator}))
    assert ours > honest - 0.15 > mean + 0.1


@pytest.mark.parametrize("aggregator", OURS)
@pytest.mark.parametrize("more", [{}, {"aggregation.buffer": 4, "devices.slow": True}], ids=str)
def test_a_resumed_run_ends_in_the_same_model(small: Any, aggregator: str, more: Any) -> None:
    keys = {**small, **more, "aggregator": aggregator, "model": "cnn", "local-steps": 2}
    keys |= {"num-clients": 6, "run-name": "whole"}
    whole = run_local(keys)
    half = run_local({**keys, "num-server-rounds": 2, "run-name": "half"})
    again = run_local({**keys, "resume-from": str(half.folder)})
    models = [(r.folder / "model.safetensors").read_bytes() for r in (whole, again)]
    assert models[0] == models[1]
    lines = (again.folder / "events.jsonl").read_text().splitlines()
    assert not [e for e in map(json.loads, lines) if e["event"] == "quarantined"]


def test_what_they_cannot_work_with_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'fltrust': needs samples on the server"):
        read_config({"aggregator": "fltrust", "data.validation-share": 0.0})
    for name in OURS:
        with pytest.raises(ConfigError, match=f"central-dp.*not '{name}'"):
            read_config({"aggregator": name, "privacy": "central-dp"})
