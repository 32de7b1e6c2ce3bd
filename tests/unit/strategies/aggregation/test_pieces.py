"""Strategies that work entry by entry give the same of pieces as of the whole."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, answer
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg, Strategy
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from forager.strategies.aggregation import pieces
from forager.strategies.aggregation.flower_aggregator import FlowerAggregator

KEYS = [str(i) for i in range(7)]
MODEL: dict[str, Any] = {
    "weight": np.zeros((33, 31), np.float32),
    "scale": np.array(1.0, np.float32),
    "one": np.zeros((1, 1), np.float32),
    "half": np.zeros(65, np.float16),
    "seen": np.array(3, np.int64),
}
ALL_OF_THEM: dict[str, Any] = {"min_train_nodes": 1, "min_available_nodes": 1}
KINDS = {"median": FedMedian, "trimmed mean": FedTrimmedAvg}


class Watched:
    """A strategy's function that says how many bytes it was given at a time."""

    def __init__(self, strategy: Strategy) -> None:
        self.given: list[int] = []
        self._aggregate = strategy.aggregate_train

    def __call__(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        arrays = [from_record(reply.content[ARRAYS]) for reply in replies]  # type: ignore[arg-type]
        self.given.append(sum(a.nbytes for own in arrays for a in own.values()))
        return self._aggregate(server_round, replies)


def trained(message: Message, number: int) -> Message:
    rng = np.random.default_rng(number)
    arrays = {
        name: (array + rng.standard_normal(array.shape)).astype(array.dtype)
        for name, array in MODEL.items()
    }
    metrics = {NUM_EXAMPLES: number + 1, "loss": 0.1 * number}
    return answer(message, {ARRAYS: to_record(arrays), METRICS: MetricRecord(metrics)})


def aggregated(kind: str, *, by_entry: bool) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    inner = KINDS[kind](**ALL_OF_THEM)
    watched = inner.aggregate_train = Watched(inner)  # type: ignore[method-assign]
    layer = FlowerAggregator(inner, mean_like=False, by_entry=by_entry)
    asked = layer.configure_train(1, to_record(MODEL), ConfigRecord(), FakeGrid(KEYS))
    replies = [trained(message, number) for number, message in enumerate(asked)]
    arrays, metrics = layer.aggregate_train(1, replies)
    assert arrays is not None
    assert metrics is not None
    return from_record(arrays), dict(metrics), watched.given


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [100, 2**10, 2**26])
def test_pieces_give_the_same_to_the_last_bit(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_PIECE", at_once)
    monkeypatch.setattr(pieces, "IN_MEMORY", 2 * at_once)
    whole, metrics, (size,) = aggregated(kind, by_entry=False)
    found, same_metrics, given = aggregated(kind, by_entry=True)
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes(), name
    assert same_metrics == metrics
    assert sum(given) == size
    assert max(given) <= at_once + 7 * 4  # an entry more of each client, where cuts are even
    assert (len(given) == 1) == (at_once > size)


def test_nobody_is_no_model() -> None:
    layer = FlowerAggregator(FedMedian(**ALL_OF_THEM), mean_like=False, by_entry=True)
    layer.configure_train(1, to_record(MODEL), ConfigRecord(), FakeGrid(KEYS))
    assert layer.aggregate_train(1, []) == (None, None)
