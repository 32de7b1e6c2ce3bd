"""Who contributed how much to the model of a round."""

import csv
from pathlib import Path
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
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.server_app.run_folder import RunFolder
from forager.strategies.build import build_strategy
from forager.strategies.layers import contributions
from forager.strategies.layers.quarantine import QuarantineLayer
from forager.tools.engine.local import run_local
from forager.tools.report import write_rounds_csv

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
    event = Contributed(
        clients=["a"], bytes_up=[5], samples=[3], norms=[0.5], shares=[1.0], values=[0.1]
    )
    told = event.without_data().to_dict()
    assert (told["clients"], told["bytes-up"]) == (["a"], [5])
    assert not told["samples"] + told["norms"] + told["shares"] + told["values"]


def test_a_round_in_which_nothing_moves_has_no_shares() -> None:
    own = contributions.Contributions()
    own._clients, own._cohorts, own._samples = ["a", "b"], [None, None], [1.0, 2.0]
    own._coordinates = [np.zeros(3)] * 2
    assert own.shares().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_the_value_of_an_update_is_what_the_mean_loses_without_it(weighting: str) -> None:
    own, rng = contributions.Contributions(), np.random.default_rng(0)
    models, sizes = rng.normal(size=(4, 3)), np.array([1.0, 2.0, 3.0, 4.0])
    own.alike = weighting == "uniform"
    own.loss = lambda arrays: float(np.abs(arrays["w"]).sum() + arrays["steps"])
    sent = {"w": np.zeros(3), "steps": np.array(7)}  # counters are not averaged
    own._clients, own._samples = list("abcd"), sizes.tolist()
    own._cohorts = ["one", "one", "one", "alone"]
    own._models = [(sent, {"w": model, "steps": np.array(9)}) for model in models]
    weights = np.ones(4) if own.alike else sizes

    def loss(*rows: int) -> float:
        return float(
            np.abs(np.average(models[list(rows)], axis=0, weights=weights[list(rows)])).sum()
        )

    expected = [loss(1, 2), loss(0, 2), loss(0, 1)] - np.array(loss(0, 1, 2))
    assert own.values() == pytest.approx([*expected, 0.0 - loss(3)])


def test_whoever_trains_on_random_labels_spares_no_loss(tmp_path: Path) -> None:
    settings = {
        **{"strategy": "fedavg", "num-clients": 4, "clients-per-round": 4, "partition": "iid"},
        **{"num-server-rounds": 3, "corruption.clients": 0.25, "output-dir": str(tmp_path)},
        **{"leave-one-out": True, "report": False},
    }
    task = load_task(read_config(settings).task_spec())
    (bad,) = [i for i in range(4) if task.client_data(i, 4).clean.float().mean() < 0.5]
    folder = run_local(settings).folder
    write_rounds_csv(RunFolder(folder))
    rows = csv.DictReader((folder / "clients.csv").read_text().splitlines())
    found = {row["client"]: float(row["loss-spared"]) for row in rows}
    assert min(found, key=lambda key: found[key]) == str(bad)
    assert found[str(bad)] < 0 < max(found.values())
