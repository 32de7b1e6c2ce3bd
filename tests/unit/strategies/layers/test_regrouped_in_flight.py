"""Cohorts that are made anew while a client trains: its update counts where the client is now."""

import numpy as np
import pytest
from fakes import FakeGrid, Notes, answer, honest_records, listening_to, small_model
from flwr.app import ConfigRecord, Message
from forager.core.config import read_config
from forager.core.log.events import CohortFailed, CohortsTrained, Quarantined
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.requests import Requests
from forager.strategies.build import single_model_stack
from forager.strategies.cohorts.base import CohortRule, Regrouping, Scene
from forager.strategies.cohorts.update_sketches import Signal
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.cohorts import Cohorts

START = to_record(small_model())
SLOW = "1"  # the only client of the odd cohort, which trains from round 1 to round 3


class Parity(CohortRule):
    """One cohort in round 1, then others by parity, under new names; as IOS, before a round."""

    def __init__(self, knows: bool) -> None:
        self.busy: list[str] = []
        self.apart, self.knows = False, knows  # whether it knows where the slow client belongs

    def place(self, scene: Scene) -> list[str]:
        return [self._of(key) for key in scene.keys]

    def settled(self, placed: dict[str, str]) -> dict[str, str]:  # type: ignore[override]
        return {key: self._of(key) for key in placed if self.knows or key != SLOW}

    def _of(self, key: str) -> str:
        return f"1.{int(key) % 2}" if self.apart else "0"

    def regroup(self, scene: Scene) -> Regrouping | None:
        self.busy += scene.busy
        if scene.round != 2:
            return None
        self.apart = True
        return {"1.0": {"0": 1.0}, "1.1": {"0": 1.0}}


class Rounds:
    """Rounds of a buffer in which one client takes its time."""

    def __init__(self, aggregator: str, knows: bool = True) -> None:
        given = {"aggregator": aggregator, "aggregation.buffer": 2, "num-clients": 4}
        config, federation = read_config(given), Federation()
        self.layer = Cohorts(
            lambda: single_model_stack(config, federation), Parity(knows), Signal(8), count=4
        )
        self.notes: Notes = listening_to(self.layer)
        self.grid = FakeGrid(["0", SLOW, "2", "4"])

    def asked(self, server_round: int) -> list[Message]:
        """Configure a round, and let the slow client begin if it is asked."""
        requests = Requests.of(
            self.layer.configure_train(server_round, START, ConfigRecord(), self.grid)
        )
        assert requests is not None
        slow = [self.grid.nodes[node] == SLOW for node in requests.nodes]
        requests.ids = ["slow" if one else "" for one in slow]
        self.layer.federation.ledger.open(requests, server_round, now=0.0, expires=60.0)
        messages = list(requests)
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"{server_round}.{number}"
        return messages

    def honest(self, message: Message) -> Message:
        key = self.grid.nodes[message.metadata.dst_node_id]
        return answer(message, honest_records(message, key))

    def model(self, cohort: str) -> dict[str, np.ndarray]:
        return from_record(self.layer.leaf_models[cohort])


@pytest.mark.parametrize("aggregator", ["fedavg", "fedyogi", "paced", "median"])
def test_an_update_of_a_cohort_that_is_gone_counts_in_the_client_s_new_one(aggregator: str) -> None:
    rounds = Rounds(aggregator)
    first = rounds.asked(1)
    late = next(m for m in first if rounds.grid.nodes[m.metadata.dst_node_id] == SLOW)
    rounds.layer.aggregate_train(1, [rounds.honest(m) for m in first if m is not late])
    before = rounds.model("0")
    second = rounds.asked(2)
    rule = rounds.layer.rule
    assert isinstance(rule, Parity)
    assert rule.busy == [SLOW]
    rounds.layer.aggregate_train(2, [rounds.honest(m) for m in second])
    assert all(np.array_equal(rounds.model("1.1")[n], a) for n, a in before.items()), "nobody's"
    rounds.asked(3)  # the odd cohort has nobody to ask
    reply = rounds.honest(late)
    rounds.layer.aggregate_train(3, [reply])
    assert not rounds.notes.of(Quarantined) + rounds.notes.of(CohortFailed)
    assert rounds.notes.of(CohortsTrained)[-1].participants == {"1.1": 1}
    after, sent = rounds.model("1.1"), small_model()
    update = {n: a - sent[n] for n, a in from_record(reply.content.array_records["arrays"]).items()}
    assert after.keys() == before.keys()
    for name in ("layer.weight", "layer.bias"):
        moved = after[name] - before[name]
        assert np.abs(moved).max() > 0
        if aggregator in ("fedavg", "median"):  # of two rounds ago: (1 + 2) ** -0.5 of its update
            np.testing.assert_allclose(moved, 3**-0.5 * update[name], rtol=1e-5, atol=1e-6)
        else:
            assert np.abs(moved).max() < 1, "a step, not another model"


def test_an_update_of_a_client_that_belongs_nowhere_counts_in_the_largest_part() -> None:
    rounds = Rounds("fedavg", knows=False)
    first = rounds.asked(1)
    late = next(m for m in first if rounds.grid.nodes[m.metadata.dst_node_id] == SLOW)
    rounds.layer.aggregate_train(1, [rounds.honest(m) for m in first if m is not late])
    rounds.layer.aggregate_train(2, [rounds.honest(m) for m in rounds.asked(2)])
    rounds.asked(3)
    rounds.layer.aggregate_train(3, [rounds.honest(late)])
    assert not rounds.notes.of(Quarantined) + rounds.notes.of(CohortFailed)
    assert rounds.notes.of(CohortsTrained)[-1].participants == {"1.0": 1}


def test_cohorts_take_turns_where_most_clients_still_train() -> None:
    rounds = Rounds("fedavg")
    first = rounds.asked(1)
    rounds.layer.aggregate_train(1, [])
    requests = Requests(first[0], [m.metadata.dst_node_id for m in first])
    requests.ids = ["open 0", "open 1", "open 2", ""]
    rounds.layer.federation.ledger.open(requests, 1, now=0.0, expires=60.0)
    views = {"1.0": [500], "1.1": [501]}
    rounds.layer.cohorts.models = dict.fromkeys(views, START)
    shares = [rounds.layer._participants(number, 1, views) for number in (1, 2, 3)]
    assert shares == [{"1.1": 1}, {"1.0": 1}, {"1.1": 1}]
