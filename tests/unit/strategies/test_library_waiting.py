"""A strategy in somebody else's app waits for clients, and says what to check if none comes."""

from typing import Any

import pytest
from fakes import FakeGrid, answer, inside, small_model
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, Strategy
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import CLIENT, CLIENT_KEY
from forager.strategies import library
from forager.strategies.layers.selection import Selection
from torch import nn

KEYS = ["0", "1", "2"]


def introduce(message: Message, key: str, look: int) -> list[Message]:
    return [answer(message, {CLIENT: ConfigRecord({CLIENT_KEY: key})})]


@pytest.mark.parametrize(("late", "warned"), [(40, True), (20, False)])
def test_who_waits_for_nobody_is_told_which_versions_can_connect(
    said: list[str], monkeypatch: pytest.MonkeyPatch, late: int, warned: bool
) -> None:
    grid, seconds = FakeGrid([], dict.fromkeys(KEYS, introduce)), 0.0

    def sleep(duration: float) -> None:
        nonlocal seconds
        seconds += duration
        if seconds >= late:
            grid.nodes.update(FakeGrid(KEYS).nodes)

    monkeypatch.setattr(library.time, "sleep", sleep)
    net = nn.Sequential(nn.Linear(2, 2))
    strategy = library.strategy("fedavg", FedAvg(min_available_nodes=3), model=net)
    messages = list(strategy.configure_train(1, to_record(small_model()), ConfigRecord({}), grid))
    assert len(messages) == len(KEYS)
    assert seconds == late
    hints = [line for line in said if line.startswith("no SuperNode is connected")]
    assert bool(hints) == warned
    assert len(hints) <= 1


class Plain(Strategy):
    """A strategy that has no settings of its own."""

    def configure_train(self, *_: Any) -> list[Message]:
        return []

    configure_evaluate = configure_train

    def aggregate_train(self, *_: Any) -> tuple[None, None]:
        return None, None

    def aggregate_evaluate(self, *_: Any) -> None:
        return None

    def summary(self) -> None:
        """Say nothing."""


def test_a_strategy_without_fractions_trains_everyone_and_evaluates_nobody() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    part = inside(library.strategy("fedavg", Plain(), model=net), Selection).part
    assert (part.fraction, part.fraction_evaluate, part.count) == (1.0, 0.0, 0)
