import os
import signal
import threading

import pytest
from forager.server_app.retries import Interrupted, stop_on_signals


def interrupted_by(number: signal.Signals) -> None:
    with stop_on_signals():
        try:
            os.kill(os.getpid(), number)
        except Exception:
            pytest.fail("swallowed as a fault")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_becomes_an_exception_that_no_fault_handling_swallows(
    number: signal.Signals,
) -> None:
    with pytest.raises(Interrupted, match=number.name):
        interrupted_by(number)


def test_handlers_are_put_back() -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with stop_on_signals():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert seen == [signal.SIGTERM]


def test_in_another_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGTERM)
    inside: list[object] = []

    def work() -> None:
        with stop_on_signals():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
