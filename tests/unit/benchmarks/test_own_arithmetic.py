from importlib import import_module
from operator import attrgetter

import pytest
from forager.benchmarks import own_arithmetic


def test_what_one_function_calls_of_another_counts_once(monkeypatch) -> None:
    now = [0.0]

    def passes(seconds):
        now[0] += seconds

    monkeypatch.setattr(own_arithmetic.time, "process_time", lambda: now[0])
    watch = own_arithmetic.Stopwatch()
    inner = watch.timed(lambda: passes(2))
    outer = watch.timed(lambda: (passes(1), inner()))
    outer()
    assert watch.seconds == 3
    passes(10)
    inner()
    assert watch.seconds == 5


@pytest.mark.parametrize("place", own_arithmetic.ARITHMETIC)
def test_functions_are_timed_where_they_are_called_and_put_back(place: str) -> None:
    module, _, name = place.partition(":")

    def found():
        return attrgetter(name)(import_module(f"forager.{module}"))

    before = found()
    with own_arithmetic.Stopwatch().on((place,)):
        assert found() is not before
    assert found() is before
