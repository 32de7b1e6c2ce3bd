"""What a curious server cannot get out of a device, whatever it asks or sets."""

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app import app
from forager.client_app.app import HANDLERS, answer_one
from forager.client_app.clients import VirtualContext, is_simulated
from forager.client_app.handlers import training
from forager.core.config import default_config, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.flower_private import in_simulation, parse_config_args
from forager.core.wire.keys import (
    ARRAYS,
    ASK_UPDATE,
    CONFIG,
    CORESET,
    HISTOGRAM,
    IDENTIFY,
    LOSS,
    METRICS,
    NUM_EXAMPLES,
    ROUND,
    SECONDS,
    SETTINGS,
    SIMILARITY,
    STEPS,
    SUMMARY,
    WANTS,
)

from forager import client_mod

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

# As docker/supernode.py makes it for a trial with a part of a built-in data set
NODE = parse_config_args(["client-id='camera-7' partition-id=1 num-partitions=3"])


def device(**settings: Any) -> Context:
    run = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
    return Context(1, 7, dict(NODE), RecordDict(), {**default_config(), **run})


def simulated(**settings: Any) -> Context:
    return VirtualContext(7, 1, 3, device(**settings).run_config, set())


def message(context: Context, kind: str = "train", **told: Any) -> Message:
    model = load_task(read_config(context.run_config).task_spec()).build_model()
    config = ConfigRecord({ROUND: 1, STEPS: 1, **told})
    content = {ARRAYS: to_record(read_arrays(model)), CONFIG: config}
    return Message(RecordDict(content), dst_node_id=7, message_type=kind)


def update(context: Context) -> Any:
    sent = message(context)
    reply = answer_one(sent, context)
    assert reply.has_content(), reply.error
    assert set(reply.content.metric_records[METRICS]) == {NUM_EXAMPLES, SECONDS}
    after = from_record(reply.content.array_records[ARRAYS])
    return np.concatenate([array.ravel() for array in after.values() if array.dtype.kind == "f"])


def test_a_partition_id_is_no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_simulated(device())
    assert is_simulated(simulated())
    ray, actors = ModuleType("ray"), ModuleType("actors")
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray.is_initialized = lambda: True  # type: ignore[attr-defined]
    assert not in_simulation(), "a device may use Ray for something else"
    monkeypatch.setitem(sys.modules, "flwr.simulation.ray_transport.ray_actor", actors)
    assert is_simulated(device())


def test_the_noise_of_a_device_cannot_be_drawn_again() -> None:
    """A server that knows seed, name and round could else subtract it."""
    settings = {"privacy": "local-dp", "local_steps": 1}
    assert np.array_equal(update(simulated(**settings)), update(simulated(**settings)))
    one, two = update(device(**settings)), update(device(**settings))
    assert np.std(one - two) == pytest.approx(2**0.5, rel=0.1)


def test_a_device_says_nothing_of_its_labels() -> None:
    def told(context: Context) -> Any:
        return answer_one(message(context), context).content.config_records[CORESET]

    # A rule that chooses in the first round, so that there is something to tell
    settings = {"data_selector": "facility-location", "noise": "closed-set", "local_steps": 1}
    assert {"labels", "clean"} <= set(told(simulated(**settings)))
    assert not {"labels", "clean"} & set(told(device(**settings)))


@pytest.mark.parametrize("kind", sorted(HANDLERS.keys() - {"train", IDENTIFY, SUMMARY}))
def test_with_local_noise_nothing_is_answered_without(kind: str) -> None:
    context = device(privacy="local-dp")
    reply = answer_one(message(context, kind), context)
    assert f"privacy = 'local-dp': {kind} would be answered without noise" in reply.error.reason


@pytest.mark.parametrize("wants", [SIMILARITY, LOSS, HISTOGRAM])
@pytest.mark.parametrize("made", [device, simulated])
def test_with_local_noise_no_summary_is_given(wants: str, made: Any) -> None:
    context = made(privacy="local-dp")
    reply = answer_one(message(context, SUMMARY, **{WANTS: wants}), context)
    assert "would be answered without noise" in reply.error.reason


def test_evaluation_is_answered_where_the_run_asks_for_it() -> None:
    context = device(privacy="local-dp", fraction_evaluate=0.5, data__client_test_share=0.2)
    assert answer_one(message(context, "evaluate"), context).has_content()


@pytest.mark.parametrize("kind", ["evaluate", ASK_UPDATE])
def test_a_mod_refuses_as_well(kind: str) -> None:
    def never(message: Message, context: Context) -> Message:
        raise AssertionError("the app must not be asked")

    context = device()
    asked = message(context, kind, **{SETTINGS: '{"privacy": "local-dp"}'})
    reply = client_mod()(asked, context, never)
    assert "would be answered without noise" in reply.error.reason


def fail(*_: Any) -> Any:
    float(np.array("Jane Doe, melanoma"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(logging.getLogger("forager"), "propagate", True)
    monkeypatch.setattr(training, "train_clients", fail)
    app._warn_once.cache_clear()
    return caplog


@pytest.mark.parametrize(
    ("context", "open_"),
    [
        (device(), False),
        (device(clients__error_texts=True), True),
        (device(clients__error_texts=True, privacy="local-dp"), False),
        (simulated(), True),
        (simulated(privacy="local-dp"), True),
    ],
    ids=["device", "asked for", "asked for with noise", "simulated", "simulated with noise"],
)
def test_the_text_of_an_error_stays_on_the_device(
    context: Context, open_: bool, logged: Any
) -> None:
    reason = answer_one(message(context), context).error.reason
    assert reason.startswith("ValueError")
    assert ("Jane" in reason) is open_
    assert "Jane Doe" in logged.text + reason, "its owner can read it"
    if not open_:
        line = fail.__code__.co_firstlineno + 1
        assert f"at {Path(__file__).name}:{line} (" in reason


def test_the_text_of_an_apps_own_error_stays_there_too(logged: Any) -> None:
    context = device()
    reply = client_mod()(message(context), context, fail)
    assert "Jane" not in reply.error.reason
    assert f"at {Path(__file__).name}:" in reply.error.reason
    assert "Jane" in logged.text
