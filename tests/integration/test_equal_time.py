"""Local steps by speed: all finish together, on the local engine's simulated clock."""

import json
from typing import Any

import numpy as np
import pytest
from forager.core.config import ConfigError, read_config
from forager.selectors.equal_time import steps_by_speed
from forager.strategies.build import build_strategy
from forager.tools.engine.local import run_local


@pytest.fixture
def slow(tmp_path: Any) -> dict[str, Any]:
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-clients": 12,
        "client-selector": "all",
        "partition": "iid",
        "num-server-rounds": 6,
        "local-epochs": 2,
        "devices.slow": True,
        "evaluate-every": 6,
        "model": "softmax",
    }


def trainings(result: Any) -> list[dict[str, Any]]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == "exchange" and e["kind"] == "train"]


@pytest.mark.parametrize("clients", [1, 2, 7, 300])
def test_steps_stay_within_their_bounds_and_faster_clients_never_do_less(clients: int) -> None:
    rng = np.random.default_rng(clients)
    usual, pace = rng.integers(1, 500, clients), rng.lognormal(0.0, 2.0, clients)
    steps = steps_by_speed(usual, pace)
    assert (steps >= 1).all()
    assert (steps <= 2 * usual).all()
    assert (steps + 0.5 >= usual / 10).all()
    alike = steps_by_speed(np.full(len(pace), 100), pace)
    assert (np.diff(alike[np.argsort(-pace)]) >= 0).all()


def test_all_finish_together(slow: dict[str, Any]) -> None:
    same, ours = (run_local({**slow, "work": work}) for work in ("same", "by-speed"))
    first, last = trainings(ours)[0], trainings(ours)[-1]
    assert first["simulated-seconds"] == trainings(same)[0]["simulated-seconds"]
    spread = [e["simulated-seconds"] / e["reply-seconds"]["median"] for e in (first, last)]
    assert spread[0] > 2.5
    assert spread[1] < 1.6
    assert last["simulated-seconds"] < first["simulated-seconds"] / 2
    assert ours.rounds[-1]["accuracy"] > same.rounds[-1]["accuracy"] - 0.05


@pytest.mark.parametrize(
    "more", [{}, {"model": "cnn", "local-steps": 8}, {"privacy": "local-dp"}], ids=str
)
def test_a_resumed_run_ends_in_the_same_model(slow: dict[str, Any], more: Any) -> None:
    keys = {**slow, **more, "work": "by-speed", "num-server-rounds": 3, "local.check-wire": True}
    keys["num-clients"] = 6
    whole = run_local({**keys, "run-name": "whole"})
    half = run_local({**keys, "num-server-rounds": 2, "run-name": "half"})
    again = run_local({**keys, "resume-from": str(half.folder)})
    models = [(r.folder / "model.safetensors").read_bytes() for r in (whole, again)]
    assert models[0] == models[1]


@pytest.mark.parametrize("trainer", ["stack", "threads", "serial"])
def test_every_trainer_takes_the_same_steps(slow: dict[str, Any], trainer: str) -> None:
    keys = {**slow, "work": "by-speed", "num-server-rounds": 3}
    results = [run_local({**keys, "local.trainer": name}) for name in ("auto", trainer)]
    scores = [result.rounds[-1]["loss"] for result in results]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_slow_clients_train_on_coresets_and_finish_with_the_others(slow: dict[str, Any]) -> None:
    fedcore = {"work": "coreset-by-speed", "data-selector": "crust", "coreset.every": 2}
    same, ours = (run_local({**slow, **more}) for more in ({}, fedcore))
    first, last = trainings(ours)[0], trainings(ours)[-1]
    alone = trainings(same)[0]["simulated-seconds"]
    assert first["simulated-seconds"] == pytest.approx(alone, rel=1e-3)
    assert last["simulated-seconds"] < first["simulated-seconds"] / 2
    assert ours.rounds[-1]["accuracy"] > same.rounds[-1]["accuracy"] - 0.05
    lines = map(json.loads, (ours.folder / "events.jsonl").read_text().splitlines())
    noted = [event for event in lines if event["event"] in ("coresets", "contributed")]
    sizes = [event["sizes"] for event in noted if event["event"] == "coresets"]
    weights = [sorted(event["samples"]) for event in noted if event["event"] == "contributed"]
    assert sum(sizes[0]) == sum(weights[0])  # all data, while nobody's speed is known
    assert weights[-1] == weights[0]  # a coreset counts for all data
    assert min(sizes[-1]) < min(sizes[0]) / 2
    assert max(sizes[-1]) == max(sizes[0])  # fast clients train on all data


def test_what_it_cannot_work_with_is_refused() -> None:
    fedcore = {"work": "coreset-by-speed", "data-selector": "crust"}
    with pytest.raises(ConfigError, match=r"work = 'coreset-by-speed': needs data-selector = "):
        read_config({"work": "coreset-by-speed"})
    with pytest.raises(ConfigError, match=r"local-steps = 5: with work = 'coreset-by-speed' it mu"):
        build_strategy(read_config({**fedcore, "local-steps": 5}))
    with pytest.raises(ConfigError, match=r"work = 'by-speed': needs objective = sgd or"):
        read_config({"work": "by-speed", "objective": "scaffold"})
    with pytest.raises(ConfigError, match=r"work = 'by-speed': task = 'app:x' is another app"):
        read_config({"work": "by-speed", "task": "app:x"})
    with pytest.raises(ConfigError, match=r"work = 'by-speed': needs data-selector = full"):
        read_config({"work": "by-speed", "data-selector": "fifo"})
