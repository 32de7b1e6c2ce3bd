"""Work by speed in the layer: what is learnt of replies, and what clients are sent."""

from typing import Any

import pytest
from fakes import FakeGrid, answer, honest_records, one_round, small_model
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import METRICS, SECONDS, STEPS, WORK
from forager.strategies.layers.equal_time import EqualTime

SECONDS_OF = {"0": 8.0, "1": 2.0, "2": 2.0, "3": 1.0}  # for ten steps


def timed(message: Message, key: str, look: int = 0) -> list[Message]:
    """Train, and tell how long that took."""
    records = honest_records(message, key)
    told = MetricRecord({**records[METRICS], SECONDS: SECONDS_OF[key]})
    return [answer(message, records | {METRICS: told})]


@pytest.mark.parametrize(("coresets", "fast"), [(False, 20), (True, 10)])
def test_the_next_steps_are_those_that_all_finish_together(coresets: bool, fast: int) -> None:
    inner = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    layer = EqualTime(inner, lambda samples: 10, coresets=coresets)
    grid = FakeGrid("0123", dict.fromkeys("0123", timed))
    arrays, _ = one_round(layer, to_record(small_model()), grid)
    assert not any(WORK in message.content for message in grid.of_kind("train"))
    assert arrays is not None
    sent = layer.configure_train(2, arrays, ConfigRecord(), grid)
    steps: dict[str, Any] = {
        grid.nodes[message.metadata.dst_node_id]: message.content[WORK][STEPS] for message in sent
    }
    assert dict(sorted(steps.items())) == {"0": 2, "1": 10, "2": 10, "3": fast}
