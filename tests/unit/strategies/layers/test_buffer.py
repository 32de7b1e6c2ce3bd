"""FedBuff: what is late is used, weighed by its age, and nobody waits for it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from forager.core.config import ConfigError, default_config, read_config
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.requests import Requests
from forager.strategies.aggregation.flower_aggregator import FlowerAggregator
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.buffer import Buffer, staleness_weight
from forager.tools.engine.local import run_local


def message(node: int, server_round: int, value: float) -> Message:
    content = {"arrays": to_record({"w": np.full(2, value, np.float32)})}
    config = ConfigRecord({"server-round": server_round})
    return Message(
        RecordDict({**content, "config": config}), dst_node_id=node, message_type="train"
    )


def reply(to: Message, value: float) -> Message:
    to.metadata.__dict__["_message_id"] = "1"
    metrics = MetricRecord({"num-examples": 1})
    content = {"arrays": to_record({"w": np.full(2, value, np.float32)}), "metrics": metrics}
    return Message(RecordDict(content), reply_to=to)


def test_an_old_update_is_moved_to_the_present_model_and_shrunk() -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    federation = Federation()
    everyone = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
    inner = FlowerAggregator(FedAvg(**everyone), mean_like=True, federation=federation)
    buffer = Buffer(inner)
    old, new = message(1, 1, 0.0), message(2, 4, 10.0)
    sent = federation.assign(1, [old])
    assert isinstance(sent, Requests)
    sent.ids = ["1"]
    federation.ledger.open(sent, 1, now=0.0, expires=60.0)  # and its client still trains
    federation.assign(4, [new])
    buffer._now = to_record({"w": np.full(2, 10.0, np.float32)})
    inner._dtypes = {"w": "float32"}
    # Three rounds old: an update of 8 counts for a half. The other one is of now: 2 is 2.
    arrays, _ = buffer.aggregate_train(4, [reply(old, 8.0), reply(new, 12.0)])
    assert arrays is not None
    assert from_record(arrays)["w"].tolist() == [13.0, 13.0]
    assert staleness_weight(3, 0.0) == 1.0


def log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


def played(tmp_path: Path, **keys: Any) -> tuple[Any, list[dict[str, Any]]]:
    settings = {"num-clients": 12, "clients-per-round": 6, "num-server-rounds": 8, "seed": 3}
    devices = {"devices.slow": True, "devices.spread": 1.5, "partition": "iid"}
    output = {"output-dir": str(tmp_path), "report": False, "checkpoint.every": 0}
    result = run_local({**settings, **devices, **output, **keys})
    return result, log(result.folder)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"client-selector": "cosage"},
        {"uplink": "top-k", "aggregator": "fedyogi"},
        {
            "cohorts": "split-test",
            "split-test.min-participants": 2,
            "split-test.first-split": 2,
            "groups.kind": "label-permutation",
        },
        {"aggregator": "median"},
        {"cohorts": "ifca"},
        {"cohorts": "cfl", "objective": "prox"},
        {"data-selector": "trusted"},
        {"privacy": "local-dp"},
        {"strategy": "ode", "stream.capacity": 5},
        {"data-selector": "ode-balanced", "stream.capacity": 5},
        {"data-selector": "fifo", "stream.capacity": 5},
        {
            **{"strategy": "auxo", "auxo.first-clustering": 1, "auxo.first-split": 2},
            **{"auxo.min-participants": 1, "groups.kind": "label-permutation"},
        },
        {"strategy": "ios", "ios.every": 2, "groups.kind": "label-permutation"},
        {"strategy": "ios", "ios.every": 1, "ios.signatures": True, "aggregator": "fedyogi"},
        {"strategy": "ios-centred", "ios.every": 1, "similarity": "cosine"},
    ],
    ids=lambda keys: "-".join(map(str, keys.values()))[:30],
)
def test_rounds_end_with_the_buffer_and_nobodys_work_is_lost(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    result, events = played(tmp_path, **{"aggregation.buffer": 3, **keys})
    assert result.reason == "completed"
    training = [e for e in events if e["event"] == "exchange" and e["kind"] == "train"]
    assert [e["received"] for e in training] == [3] * 8
    sent = [e["sent"] for e in training]
    if keys.get("strategy") == "ios":  # all idle clients of a cohort may be fewer than its turn
        assert all(sum(sent[: n + 1]) - 3 * n <= 6 for n in range(8))
        assert sum(sent) >= 24
    else:
        assert sent == [6] + [3] * 7  # as many as had answered
    assert not [e for e in events if e["event"] in ("quarantined", "cohort-failed")]
    assert not any(e["late"] for e in training)


def test_a_client_is_not_chosen_again_while_it_trains(tmp_path: Path) -> None:
    _, events = played(tmp_path, **{"aggregation.buffer": 2, "clients-per-round": 10})
    out: Counter[str] = Counter()
    chosen = [e["chosen"] for e in events if e["event"] == "selected" and e["phase"] == "train"]
    for keys in chosen:
        out.update(keys)
    assert sum(out.values()) == 10 + 2 * 7
    assert len(set(chosen[0])) == 10
    assert not set(chosen[1]) - {str(i) for i in range(12)}


def test_it_is_quicker_than_waiting_for_all(tmp_path: Path) -> None:
    def seconds(**keys: Any) -> float:
        _, events = played(tmp_path, **keys)
        return sum(e.get("simulated-seconds") or 0.0 for e in events if e["event"] == "exchange")

    assert seconds(**{"aggregation.buffer": 3}) < 0.5 * seconds()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"round.over-commit": 0.5}, "round.over-commit = 0.5 also avoids waiting"),
        ({"aggregation.buffer": 7}, "at most 5, the clients that train at a time"),
        (
            {"objective": "scaffold"},
            "last round; use sgd, prox",
        ),
        ({"cohorts": "flexcfl"}, "cohorts = 'flexcfl' cannot use updates of earlier rounds: it"),
        ({"aggregation.staleness": -1.0}, "aggregation.staleness = -1.0"),
    ],
)
def test_what_it_cannot_be_combined_with_is_refused(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config({**default_config(), "aggregation.buffer": 3, **keys})
    assert reason in str(error.value)
