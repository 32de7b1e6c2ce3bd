"""Runs one after the other on the same clients, which remember: a run finds nothing of another."""

import json
import shutil

import numpy as np
import pytest
from forager.core.config import default_config
from forager.core.methods.catalogue import all_methods
from forager.core.methods.stream import StreamMethod
from forager.server_app.app import run
from forager.tools.engine.local_grid import LocalGrid
from safetensors.numpy import load_file

CLIENTS = 6
STATEFUL = [method for method in all_methods() if method.hook]
ONE_EACH = {method.hook: method for method in reversed(STATEFUL)}.values()
THREE_ROUNDS = {"num-server-rounds": 3, "checkpoint.every": 1}
# What lets a method keep something within two rounds, or what it cannot do without.
MORE = {
    "gradmatch": {"coreset.every": 1, "coreset.first-round": 0},
    "centred-overlap": {"cohorts": "similarity"},
    "index-overlap": {"cohorts": "similarity"},
    "signed-overlap": {"cohorts": "similarity"},
    "top-k": {"top-k.density": 0.05},
    "by-loss": {"client-selector": "local-loss"},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def small(tmp_path, cache):
    """Settings of a run that takes a moment."""
    return {
        **default_config(),
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "data.cache-dir": cache,
        "num-server-rounds": 2,
        "num-clients": CLIENTS,
        "clients-per-round": 4,
        "local-steps": 3,
        "checkpoint.keep": 3,
    }


def play(grid, config):
    """Run on clients as they are; return the run folder."""
    for context in grid.contexts.values():
        context.run_config = config
    folder, reason = run(grid, config)
    assert reason == "completed"
    events = [json.loads(line) for line in folder.events_path.read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("round-finished") == config["num-server-rounds"]
    assert "quarantined" not in kinds
    assert "cohort-failed" not in kinds
    for event in events:
        if event["event"] == "exchange":
            assert (event["failed"], event["late"]) == ({}, []), event
    return folder.path


def same_model(one, other):
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def settings_of(method):
    """What chooses a method, by a preset where there is one."""
    preset = next(iter(method.presets), None)
    how = {method.axis: method.name} if preset is None else {"strategy": preset}
    return {**how, **MORE.get(method.name, {})}


@pytest.mark.parametrize("method", STATEFUL, ids=lambda method: method.name)
def test_a_second_run_on_clients_that_remember_the_first(small, method):
    config = small | settings_of(method)
    grid = LocalGrid(CLIENTS, config)
    first, second = play(grid, config), play(grid, config)
    if not isinstance(method, StreamMethod):  # what a device has stored outlives a run
        assert same_model(first, second)


def test_all_at_once_and_in_turn(small):
    """Methods that keep something take turns on the same clients, and work together on them."""
    grid = LocalGrid(CLIENTS, small)
    together = {
        "data-selector": "gradmatch",
        "objective": "scaffold",
        "uplink": "top-k",
        **MORE["gradmatch"],
        **MORE["top-k"],
    }
    turns = [
        together,
        {"strategy": "moon"},
        {"strategy": "ode-balanced"},
        {"strategy": "auxo"},
        together,
    ]
    first, *_, last = [play(grid, small | turn) for turn in turns]
    assert same_model(first, last)


def test_a_second_run_with_another_model(small):
    grid = LocalGrid(CLIENTS, small)
    config = small | {"strategy": "scaffold"}
    other = config | {"net.hidden": 7}
    play(grid, config)
    assert same_model(play(grid, other), play(LocalGrid(CLIENTS, other), other))


def test_a_run_of_the_same_name_is_another_run(small, tmp_path):
    """Its folder was deleted, or lies elsewhere: what clients kept is not of this run."""
    config = small | {"strategy": "scaffold", "run-name": "again"}
    grid = LocalGrid(CLIENTS, config)
    play(grid, config | {"clients-per-round": 2, "num-server-rounds": 1})
    used, fresh = ({**config, "output-dir": str(tmp_path / name)} for name in ("used", "fresh"))
    assert same_model(play(grid, used), play(LocalGrid(CLIENTS, fresh), fresh))


@pytest.mark.parametrize("method", STATEFUL, ids=lambda method: method.name)
def test_clients_that_are_further_on_than_a_resumed_run(small, method):
    """The newest checkpoints are lost, and with them what the clients did since."""
    config = small | settings_of(method) | THREE_ROUNDS
    grid = LocalGrid(CLIENTS, config)
    folder = play(grid, config)
    assert same_model(kept(folder), resumed(grid, config, folder, after=1))


# --- Clients that keep their state in files, as devices do


def on_disk(config, folder):
    grid = LocalGrid(CLIENTS, config)
    for context in grid.contexts.values():
        context.node_config["state-dir"] = str(folder)
    return grid


@pytest.mark.parametrize("method", ONE_EACH, ids=lambda method: method.name)
def test_devices_in_a_second_run_and_in_one_that_is_resumed(small, method, tmp_path):
    config = small | settings_of(method) | THREE_ROUNDS
    grid = on_disk(config, tmp_path / "state")
    first, second = play(grid, config), play(grid, config)
    stream = isinstance(method, StreamMethod)
    assert stream or same_model(first, second)
    finished = kept(second)
    # A device can go back by one training; if it must go further, it begins again.
    assert same_model(finished, resumed(grid, config, second, after=2)) or stream
    resumed(grid, config, second, after=1)
    # The other run is not lost by that.
    assert same_model(kept(first), resumed(grid, config, first, after=2)) or stream


def kept(folder):
    """A copy of a run's model, which a resumed run writes again."""
    copy = folder.with_name(f"{folder.name}-copy")
    copy.mkdir()
    shutil.copy(folder / "model.safetensors", copy)
    return copy


def resumed(grid, config, folder, after):
    """Delete checkpoints of later rounds; resume the run on clients that have played them."""
    for path in (folder / "checkpoints").iterdir():
        if int(path.stem.removeprefix("round-")) > after:
            path.unlink()
    assert play(grid, config | {"resume-from": str(folder)}) == folder
    return folder
