"""The layer that shares out steps by the losses that a selector asked for."""

from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, answer, honest_records, one_round, small_model
from flwr.app import Message, MetricRecord
from forager.core.config import ConfigError, read_config
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import LOSS, METRICS, NUM_EXAMPLES, SHARE, WORK
from forager.selectors.work_by_loss import work_by_loss
from forager.strategies.build import build_strategy

KEYS = [str(i) for i in range(8)]
MODEL = small_model()


def telling(loss: float) -> Any:
    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        if message.metadata.message_type == "query.summary":
            told = MetricRecord({LOSS: loss, NUM_EXAMPLES: 9})
            return [answer(message, {**honest_records(message, key), METRICS: told})]
        return [answer(message, honest_records(message, key))]

    return behave


def shares_of(grid: FakeGrid, strategy: Any, number: int = 1) -> list[float]:
    before = len(grid.sent)
    one_round(strategy, to_record(MODEL), grid, number)
    sent = [m for m in grid.sent[before:] if m.metadata.message_type == "train"]
    assert sent
    return sorted(m.content[WORK][SHARE] for m in sent)


def stack(**keys: Any) -> Any:
    config: Any = {"num-clients": 8, "clients-per-round": 4, "work": "by-loss", **keys}
    return build_strategy(read_config(config))


@pytest.mark.parametrize("selector", ["flad", "local-loss"])
def test_the_higher_the_loss_of_this_round_the_more_steps(selector: str) -> None:
    strategy = stack(**{"client-selector": selector})
    assert strategy.describe().startswith("WorkByLoss(Quarantine(Selection(")
    losses = [0.1, 0.1, 0.1, 0.1, 0.6, 0.8, 0.9, 1.0]
    grid = FakeGrid(KEYS, {key: telling(loss) for key, loss in zip(KEYS, losses, strict=True)})
    np.testing.assert_allclose(shares_of(grid, strategy), work_by_loss(losses[4:]))
    grid = FakeGrid(KEYS, {key: telling(0.5) for key in KEYS})
    assert shares_of(grid, strategy, 2) == [1.0] * 4


def test_with_riding_answers_those_not_heard_from_take_all_steps() -> None:
    strategy = stack(**{"client-selector": "flad", "summary.mode": "piggyback"})
    assert shares_of(FakeGrid(KEYS), strategy) == [1.0] * 4


def test_what_it_cannot_work_with_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"work = 'by-loss': needs client-selector = flad or l.*"):
        read_config({"work": "by-loss", "client-selector": "random"})
    flad = {"work": "by-loss", "client-selector": "flad"}
    with pytest.raises(ConfigError, match=r"work = 'by-loss': needs objective = sgd or"):
        read_config({**flad, "objective": "scaffold"})
    with pytest.raises(ConfigError, match=r"work = 'by-loss': task = 'app:x' is another app"):
        read_config({**flad, "task": "app:x"})
    with pytest.raises(ConfigError, match=r"work = 'by-loss': needs data-selector = full"):
        read_config({**flad, "data-selector": "fifo"})
    with pytest.raises(ConfigError, match=r"work = 'by-loss' releases more than models"):
        read_config({**flad, "privacy": "central-dp"})
