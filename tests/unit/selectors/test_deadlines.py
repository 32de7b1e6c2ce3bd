"""The deadline that is learned from times."""

import numpy as np
import pytest
from forager.core.config import ConfigError, read_config
from forager.selectors.deadlines import learned_deadline
from forager.strategies.federation.client_memory import ResponseTimes


def test_a_few_very_slow_clients_do_not_move_it() -> None:
    times = np.random.default_rng(0).lognormal(2.0, 0.5, 100)
    slower = times.copy()
    slower[np.argsort(times)[-10:]] *= 1000
    assert learned_deadline(slower, 600.0) == learned_deadline(times, 600.0)
    assert (times > learned_deadline(times, 600.0)).mean() < 0.1


def test_it_keeps_its_bounds() -> None:
    assert learned_deadline([0.01] * 9, 600.0) == 1.0
    assert learned_deadline([0.01] * 9, 0.5) == 0.5
    assert learned_deadline([9000.0] * 9, 600.0) == 600.0


def test_it_grows_when_most_clients_are_late_and_follows_what_is_learned() -> None:
    times = ResponseTimes(600.0, learns_deadline=True)
    assert times.deadline() == 600.0
    for key in "abcde":
        times.replied(key, 4.0, 1)
    assert times.deadline() == 8.0
    for key in "abc":
        for server_round in range(2, 8):
            times.late(key, 8.0, server_round)
    assert times.deadline() > 16.0
    again = ResponseTimes(600.0, learns_deadline=True)
    assert again.deadline() == 600.0
    again.load_state_dict(times.state_dict())
    assert again.deadline() == times.deadline()


@pytest.mark.parametrize("value", ["soon", "", True, -1.0])
def test_other_words_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"round.deadline = .*seconds, above 0, or 'auto'"):
        read_config({"round.deadline": value})  # type: ignore[dict-item]


def test_a_buffer_does_not_wait_for_it() -> None:
    with pytest.raises(ConfigError, match=r"aggregation.buffer = 2: round.deadline = 'auto'"):
        read_config({"round.deadline": "auto", "aggregation.buffer": 2})
