"""Rounds of presets: measured next to FedAvg's, and traced."""

from collections.abc import Callable

import pytest
from forager.benchmarks import methods_speed, round_trace
from forager.benchmarks.speed_records import METHOD_TARGETS
from forager.core.methods.catalogue import presets


def test_every_target_is_of_a_preset_and_a_set_up() -> None:
    named = {f"{preset}, {setup}" for preset in presets() for setup in methods_speed.SETUPS}
    assert set(METHOD_TARGETS) <= named


def test_a_turn_is_whole_fives_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def play() -> None:
        nonlocal now
        now += 0.03

    assert methods_speed.one_turn(play, lambda: now) == pytest.approx([0.03] * 5)
    monkeypatch.setattr(methods_speed, "_TURN", 0.2)
    assert len(methods_speed.one_turn(play, lambda: now)) == 10


def test_what_is_done_in_every_fifth_round_counts_in_the_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(methods_speed, "engine_round", lambda keys, _: rounds(keys, clock))
    found = methods_speed.measure("ios-centred", {}, clock=lambda: clock[0])
    assert (found.median, found.mean) == pytest.approx((2.0, 4.0))
    assert found.baseline == pytest.approx(1.0)


def rounds(keys: dict[str, object], clock: list[float]) -> Callable[[], None]:
    """Rounds of a second; those of others take two, every fifth of them twelve."""
    played = 0

    def play() -> None:
        nonlocal played
        played += 1
        slow = 2.0 if played % 5 else 12.0
        clock[0] += 1.0 if keys["strategy"] == "fedavg" else slow

    return play


def test_a_trace_counts_calls_from_one_file_to_another() -> None:
    found = round_trace.trace_round("fedavg")
    assert "server_app/loop.py" in found.files
    assert all(caller != callee for caller, callee in found.calls)
    assert found.crossings == sum(times for _, times in found.busiest(len(found.files)))
