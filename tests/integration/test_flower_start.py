"""Flower's own ``strategy.start`` drives our layers: they need neither our loop nor our grid."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, Result
from forager.core.config import RunConfig, default_config, read_config
from forager.core.learning.evaluation import evaluate
from forager.core.learning.model_arrays import read_arrays
from forager.core.log.events import CohortsTrained, Event, Quarantined, Selected, SparseUplinkUsed
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import AFFINITY, ARRAYS, METRICS, SPARSE, SUMMARY
from forager.selectors.client_selectors.cosage import CosAge
from forager.strategies.build import build_strategy
from forager.strategies.cohorts.auxo import AuxoRule
from forager.strategies.cohorts.update_sketches import signal_of
from forager.strategies.layers.base import Layer
from forager.strategies.layers.candidates import Participation
from forager.strategies.layers.cohorts import Cohorts
from forager.strategies.layers.quarantine import QuarantineLayer
from forager.strategies.layers.selection import Selection
from forager.strategies.layers.sparse_uplink import SparseUplink
from forager.tools.engine.local_grid import LocalGrid

CLIENTS, ROUNDS = 6, 2


def fedavg() -> FedAvg:
    """Flower's strategy, that takes whoever it sees."""
    return FedAvg(
        fraction_train=1.0,
        fraction_evaluate=1.0,
        min_train_nodes=1,
        min_evaluate_nodes=1,
        min_available_nodes=1,
    )


class Listening(LocalGrid):
    """The local engine's grid, which remembers what clients were asked and what they answered."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.num_clients, config.flat(), check_wire=True)
        self.asked: Counter[str] = Counter()
        self.trained: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.asked.update(message.metadata.message_type for message in messages)
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        for reply in replies:
            assert not reply.has_error(), reply.error
            if reply.metadata.message_type == "train":
                self.trained.append(reply)
        return replies


class Run:
    """Two rounds of a stack under Flower's loop, and what was seen of them."""

    def __init__(self, keys: dict[str, Any], make: Callable[[RunConfig], Layer]) -> None:
        general = {"num-clients": CLIENTS, "partition": "iid", "data.client-test-share": 0.2}
        self.config = read_config({**default_config(), **general, **keys})
        self.task = load_task(self.config.task_spec())
        self.model = self.task.build_model()
        self.before = read_arrays(self.model)
        self.grid = Listening(self.config)
        self.strategy = make(self.config)
        self.events: list[Event] = []
        self.strategy.federation.journal = self.events.append
        self.result: Result = self.strategy.start(
            grid=self.grid,
            initial_arrays=to_record(self.before),
            num_rounds=ROUNDS,
            timeout=60.0,
            evaluate_fn=self._evaluate,
        )

    def _evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(evaluate(self.model, from_record(arrays), self.task.server_data().test))

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def check_that_it_learned(self, trained: int) -> None:
        """Look at what any run leaves behind."""
        assert len(self.grid.trained) == self.grid.asked["train"] == trained
        assert not self.of(Quarantined)
        after = from_record(self.result.arrays)
        assert after.keys() == self.before.keys()
        assert any(not np.array_equal(after[name], self.before[name]) for name in after)
        losses = [float(m["loss"]) for m in self.result.evaluate_metrics_serverapp.values()]  # type: ignore[arg-type]
        assert len(losses) == ROUNDS + 1
        assert losses[-1] < losses[0]
        assert set(self.result.train_metrics_clientapp) == {1, 2}


def test_cosage_chooses_around_fedavg() -> None:
    def make(config: RunConfig) -> Layer:
        return Selection(fedavg(), CosAge(), Participation(count=3, fraction_evaluate=0.5))

    run = Run({"client-selector": "cosage", "clients-per-round": 3}, make)
    run.check_that_it_learned(trained=2 * 3)
    chosen = [event.chosen for event in run.of(Selected) if event.phase == "train"]
    assert [len(keys) for keys in chosen] == [3, 3]
    assert set(chosen[0]) | set(chosen[1]) <= {str(i) for i in range(CLIENTS)}
    assert run.grid.asked[SUMMARY] == CLIENTS  # once there is an update to compare with
    assert run.grid.asked["evaluate"] == 2 * 3
    assert set(run.result.evaluate_metrics_clientapp) == {1, 2}


def test_sparse_updates_are_decoded_and_checked() -> None:
    def make(config: RunConfig) -> Layer:
        return SparseUplink(QuarantineLayer(fedavg()), density=0.2)

    run = Run({"uplink": "top-k", "top-k.density": 0.2}, make)
    run.check_that_it_learned(trained=2 * CLIENTS)
    used = run.of(SparseUplinkUsed)
    assert [event.round for event in used] == [1, 2]
    assert all(0 < event.bytes_sparse < event.bytes_dense / 2 for event in used)
    assert run.grid.asked["evaluate"] == 2 * CLIENTS


def test_what_comes_by_the_sparse_uplink_is_sparse() -> None:
    seen: list[set[str]] = []

    class Watching(SparseUplink):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            replies = list(replies)
            seen.extend(set(reply.content) for reply in replies)
            return super().aggregate_train(server_round, replies)

    Run({"uplink": "top-k"}, lambda config: Watching(QuarantineLayer(fedavg())))
    assert len(seen) == 2 * CLIENTS
    assert all(SPARSE in names and METRICS in names and ARRAYS not in names for names in seen)


def test_cohorts_of_auxo_train() -> None:
    def make(config: RunConfig) -> Layer:
        return Cohorts(
            lambda: Selection(fedavg(), CosAge(), Participation(fraction_evaluate=1.0)),
            AuxoRule(config),
            signal_of(config),
        )

    run = Run({"cohorts": "auxo", "auxo.first-clustering": 0}, make)
    run.check_that_it_learned(trained=2 * CLIENTS)
    trained = run.of(CohortsTrained)
    assert [event.round for event in trained] == [1, 2]
    assert all(AFFINITY in reply.content for reply in run.grid.trained)
    assert isinstance(run.strategy, Cohorts)
    assert set(run.strategy.members) == {str(i) for i in range(CLIENTS)}


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "cosage", "clients-per-round": 3},
        {"strategy": "split-test", "client-selector": "all", "uplink": "top-k"},
        {"strategy": "auxo", "client-selector": "all"},
        {"strategy": "trusted", "clients-per-round": 3},
        {"strategy": "ode-balanced", "clients-per-round": 3},
    ],
    ids=lambda keys: keys["strategy"],
)
def test_whole_stacks_too(keys: dict[str, Any]) -> None:
    run = Run(keys, build_strategy)
    run.check_that_it_learned(trained=2 * (3 if "clients-per-round" in keys else CLIENTS))
