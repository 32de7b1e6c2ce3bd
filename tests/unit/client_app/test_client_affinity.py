"""A client's affinity records, one message at a time."""

import math
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.batch import Batch
from forager.client_app.hooks.auxo import AffinityRecords
from forager.core.config import read_config
from forager.core.learning.job import Outcomes
from forager.core.wire.keys import AFFINITY
from forager.core.wire.requests import Requests

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

PART = AffinityRecords(read_config({"cohorts": "auxo"}))
CHILDREN = {"leaves": ["0.0", "0.1"]}


class Client:
    """Answers messages one after the other and keeps its state between them."""

    def __init__(self) -> None:
        self.context = Context(1, 2, {"partition-id": 0}, RecordDict(), {})

    def answer(self, told: dict[str, Any] | None) -> dict[str, Any]:
        """Return the request that rides on the reply; empty if there is none."""
        content = RecordDict({} if told is None else {AFFINITY: ConfigRecord(told)})
        message = Message(content, dst_node_id=2, message_type="train")
        requests = Requests.of([message])
        assert requests is not None
        batch = Batch(requests, [self.context])
        PART.before(batch)
        PART.after(batch, Outcomes({}, [0.0], [1], [1]))
        batch.close()
        return dict(batch.records.get(AFFINITY, [{}])[0])

    def rewards(self, told: dict[str, Any]) -> dict[str, float]:
        request = self.answer(told)
        return dict(zip(request["cohorts"], request["rewards"], strict=True))


def feedback(cohort: str, reward: float, index: int, serial: int) -> dict[str, Any]:
    return {"cohort": cohort, "reward": reward, "index": index, "serial": serial}


def test_feedback_is_learnt_kept_and_sent_as_the_next_request() -> None:
    client = Client()
    client.answer({"leaves": ["0"], **feedback("0", math.nan, 1, 1)})
    rewards = client.rewards(CHILDREN)  # the cohort was split meanwhile, along the clusters
    assert (rewards["0.0"], rewards["0.1"]) == (0.0, pytest.approx(0.1))
    told = {**CHILDREN, **feedback("0.1", 1.0, -1, 2)}
    for _ in range(2):  # what arrives twice counts once
        assert client.rewards(told)["0.1"] == pytest.approx(0.2 * 1.0 + 0.8 * 0.1)


def test_a_client_that_lost_its_records_has_no_preference_and_says_so() -> None:
    client = Client()
    client.answer({"leaves": ["0"], **feedback("0", math.nan, 1, 1)})
    client.context.state = RecordDict()
    assert set(client.rewards(CHILDREN).values()) == {0.0}


def test_a_server_that_says_nothing_gets_no_request_from_a_new_client() -> None:
    assert Client().answer(None) == {}
