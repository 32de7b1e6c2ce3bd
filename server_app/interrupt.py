"""End a run cleanly on SIGTERM or SIGINT."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal asks the run to end.

    Not an Exception: nothing that handles faults may swallow it.
    """


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise :class:`Interrupted` in the main thread when a signal arrives.

    Elsewhere (Flower's simulation runs the ServerApp in a thread) signals cannot be caught; there
    the checkpoint of the last round is what remains.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(f"received {signal.Signals(number).name}")

    previous = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
