"""The time that replies arrive by."""

import time
from typing import Any

import pytest
from fakes import FakeGrid
from forager.strategies.federation.clock import Clock, ClockedGrid, WallClock, clock_of


class Sleeps(list[float]):
    """A module of time that notes how long somebody sleeps."""

    monotonic = staticmethod(time.monotonic)
    sleep = list.append


@pytest.mark.parametrize(("at_most", "slept"), [(5.0, 0.25), (0.1, 0.1), (-3.0, 0.0)])
def test_the_machines_clock_waits_for_a_poll_at_most(
    monkeypatch: pytest.MonkeyPatch, at_most: float, slept: float
) -> None:
    sleeps = Sleeps()
    monkeypatch.setattr("forager.strategies.federation.clock.time", sleeps)
    clock = WallClock(poll=0.25)
    before = clock.now()
    clock.wait(at_most)
    assert sleeps == [slept]
    assert clock.now() >= before
    assert clock.simulated_since(before) is None


class Frozen(Clock):
    poll = between_looks = 0.0

    def now(self) -> float:
        return 7.0

    def wait(self, at_most: float) -> None:
        raise AssertionError("nobody waits")

    def simulated_since(self, moment: float) -> float:
        return 7.0 - moment


class Clocked(FakeGrid, ClockedGrid):
    clock = Frozen()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_a_runtime_may_bring_its_own_clock() -> None:
    assert clock_of(Clocked(["0"]), 0.5) is Clocked.clock
    usual = clock_of(FakeGrid(["0"]), 0.5)
    assert isinstance(usual, WallClock)
    assert usual.poll == 0.5
