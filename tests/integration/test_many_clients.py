"""Twenty thousand virtual clients: the work of a round grows with those used, not with all."""

import sys
from typing import Any

import numpy as np
import pytest
from forager.core.config import default_config
from forager.core.wire.arrays import from_record
from forager.server_app.app import build_loop
from forager.server_app.loop import Loop
from forager.tools.engine.local_grid import LocalGrid

PER_ROUND = 10


def loop_of(tmp_path: Any, clients: int, **more: Any) -> tuple[LocalGrid, Loop]:
    config = {
        **default_config(),
        "task": "forager.benchmarks.workloads:digits_60k",
        "partition": "iid",
        "model": "softmax",
        "num-clients": clients,
        "clients-per-round": PER_ROUND,
        "evaluate-every": 100,
        "num-server-rounds": 100,
        "output-dir": str(tmp_path / "runs"),
        "data.cache-dir": str(tmp_path / "cache"),
        "checkpoint.every": 0,
        **more,
    }
    grid = LocalGrid(clients, config)
    return grid, build_loop(grid, config)[1]


def calls_of_a_round(loop: Loop) -> int:
    """Return how many functions one round calls; the machine's speed does not matter."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        loop.play_round()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("selector", ["random", "aoi"])
def test_a_round_costs_no_more_than_with_few_clients(tmp_path: Any, selector: str) -> None:
    calls = {}
    for clients in (400, 20_000):
        _, loop = loop_of(tmp_path, clients, **{"client-selector": selector})
        loop.play_round()
        loop.play_round()
        calls[clients] = calls_of_a_round(loop)
    assert calls[20_000] < 1.1 * calls[400]


def test_only_those_used_are_kept(tmp_path: Any) -> None:
    grid, loop = loop_of(tmp_path, 20_000)
    loop.play_round()
    loop.play_round()
    assert len(grid.contexts) == 20_000
    assert len(grid.contexts._made) <= 2 * PER_ROUND
    (memory,) = _sections(loop.state(), "memory")
    assert len(memory["ages"]) <= 2 * PER_ROUND
    assert memory["crowd"] == {"clients": 20_000, "age": 2}


def test_a_resumed_run_goes_on_as_if_never_stopped(tmp_path: Any) -> None:
    _, loop = loop_of(tmp_path, 20_000, **{"client-selector": "aoi"})
    loop.play_round()
    state = loop.state()
    _, resumed = loop_of(tmp_path, 20_000, **{"client-selector": "aoi"})
    resumed.load_state(state)
    for one in (loop, resumed):
        one.play_round()
        one.play_round()
    found, expected = from_record(resumed.arrays), from_record(loop.arrays)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def _sections(tree: Any, name: str) -> list[Any]:
    if not isinstance(tree, dict):
        return []
    here = [tree[name]] if name in tree else []
    return here + [found for part in tree.values() for found in _sections(part, name)]
