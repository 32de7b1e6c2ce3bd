"""Who contributed how much to the model of a round."""

from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    honest_records,
    inside,
    listening_to,
    num_examples,
    one_round,
    small_model,
)
from flwr.app import Message
from forager.core.config import read_config
from forager.core.log.events import Contributed
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.strategies.build import build_strategy
from forager.strategies.layers import contributions
from forager.strategies.layers.quarantine import QuarantineLayer

MOVES = {"0": 0.01, "1": 0.02, "2": -0.01, "3": 0.03}  # what each adds to every parameter


def moving(message: Message, key: str, look: int = 0) -> list[Message]:
    records = honest_records(message, key)
    before = from_record(message.content.array_records[ARRAYS])
    after = {n: a + a.dtype.type(MOVES[key]) for n, a in before.items() if a.dtype.kind == "f"}
    return [answer(message, records | {ARRAYS: to_record(before | after)})]


def played(**config: Any) -> tuple[Contributed, Notes]:
    few = {"num-clients": 4, "clients-per-round": 4}
    strategy = build_strategy(read_config({"strategy": "fedavg", **few, **config}))
    notes = listening_to(inside(strategy, QuarantineLayer))
    one_round(
        strategy, to_record(small_model()), FakeGrid(list(MOVES), dict.fromkeys(MOVES, moving))
    )
    (event,) = notes.of(Contributed)
    return event, notes


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_shares_are_those_of_the_mean_update(weighting: str) -> None:
    event, _ = played(weighting=weighting)
    weights = {key: num_examples(key) if weighting == "examples" else 1 for key in MOVES}
    moved = {key: weights[key] * move for key, move in MOVES.items()}
    expected = [moved[key] / sum(moved.values()) for key in event.clients]
    assert sorted(event.clients) == list(MOVES)
    assert event.shares == pytest.approx(expected, rel=1e-3)
    assert event.shares[event.clients.index("2")] < 0  # it pulls the other way
    assert event.samples == [num_examples(key) for key in event.clients]
    size = (event.norms[0] / abs(MOVES[event.clients[0]])) ** 2  # the number of parameters
    assert event.norms == pytest.approx(
        [abs(MOVES[k]) * size**0.5 for k in event.clients], rel=1e-2
    )


def test_a_few_coordinates_of_a_large_model_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = played()
    monkeypatch.setattr(contributions, "MOST_COORDINATES", 3)
    some, _ = played()
    assert some.shares == pytest.approx(whole.shares, rel=1e-3)


def test_a_private_run_says_nothing_of_data() -> None:
    event = Contributed(clients=["a"], bytes_up=[5], samples=[3], norms=[0.5], shares=[1.0])
    told = event.without_data().to_dict()
    assert (told["clients"], told["bytes-up"]) == (["a"], [5])
    assert not told["samples"] + told["norms"] + told["shares"]


def test_a_round_in_which_nothing_moves_has_no_shares() -> None:
    own = contributions.Contributions()
    own._clients, own._cohorts, own._samples = ["a", "b"], [None, None], [1.0, 2.0]
    own._coordinates = [np.zeros(3)] * 2
    assert own.shares().tolist() == [0.0, 0.0]
