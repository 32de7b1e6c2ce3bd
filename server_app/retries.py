"""What a run puts up with: how often, and for how long, a round may fail before the run does."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ..core.wire.versions import why_nobody_connects
from .exchange import Exchange

_log = logging.getLogger("forager")
_PAUSE = 2.0  # seconds before a round is tried again
ROLL_BACK_AFTER = 3  # failures of a round, with every reply set aside
_REFUSED = 5  # rounds in a row of which no reply could be used
_REMEDY = (
    "If this holds for all clients, training diverges: lower learning-rate, or scale the inputs "
    "with data.scale = 'standard'"
)
_LONELY = 30.0  # seconds without any client after which the log says what to check
_HOPELESS = 3  # rounds in a row in which every client asked answered with an error


class RunFailed(RuntimeError):
    """The run cannot go on; the text says why."""


class RoundFailed(Exception):
    """A round failed and will be tried again."""


class AllRefused(RoundFailed):
    """Clients answered, but no reply was usable: what they were sent may be at fault."""


class NobodyThere(RoundFailed):
    """No client is connected."""


@dataclass
class LoopPlan:
    """How long a run goes on, what it puts up with, and what it is called."""

    num_rounds: int  # the last round
    evaluate_every: int = 1  # rounds between two evaluations; the last is always evaluated
    min_replies: int = 1  # a round with fewer is tried again
    give_up_after: float = 600.0  # seconds without a successful round that end the run
    late_counts: bool = False  # replies that come after their round are aggregated in the next
    title: str = ""  # in the log; the layers by default
    config: dict[str, Any] = field(default_factory=dict)  # to refuse resuming another run
    frozen: str = ""  # checksum of the arrays that never travel, for clients to compare


class Patience:
    """Counts the failures of a round; waits before the next try, or ends the run."""

    def __init__(self, plan: LoopPlan) -> None:
        self._plan = plan
        self._told_what_to_check, self._said = False, ""
        self.begin()

    def begin(self) -> None:
        """Forget the failures of an earlier round."""
        self._since, self._hopeless, self._refused = time.monotonic(), 0, 0

    def count(self, failure: RoundFailed, last: Exchange | None) -> None:
        """Take one more failure, and the exchange of the round."""
        self._refused = self._refused + 1 if isinstance(failure, AllRefused) else 0
        all_failed = last is not None and last.errors == last.sent
        self._hopeless = self._hopeless + 1 if all_failed else 0

    @property
    def asks_for_earlier_state(self) -> bool:
        """Whether what was accepted before may be at fault."""
        return self._refused >= ROLL_BACK_AFTER

    def wait(self, server_round: int, failure: RoundFailed) -> None:
        """Wait before the next try; :class:`RunFailed` if there is to be none."""
        waited, most = time.monotonic() - self._since, self._plan.give_up_after
        failed = f"round {server_round} failed"
        if self._refused >= _REFUSED:
            raise RunFailed(f"{failed} {self._refused} times: {failure}. {_REMEDY}") from failure
        if self._hopeless >= _HOPELESS:
            times = f"{self._hopeless} times at every client"
            raise RunFailed(f"{failed} {times}: {failure}") from failure
        lonely = isinstance(failure, NobodyThere)
        if waited >= most:
            check = f": {why_nobody_connects()}" if lonely else ""
            raise RunFailed(
                f"{failed} for {waited:.0f} s (round.give-up-after = {most:g}): {failure}{check}"
            ) from failure
        if lonely and waited >= _LONELY and not self._told_what_to_check:
            self._told_what_to_check = True
            _log.warning(why_nobody_connects())
        if (told := f"round {server_round} is tried again: {failure}") != self._said:
            self._said = told
            _log.warning("%s", told)
        time.sleep(min(_PAUSE, most))


class Interrupted(BaseException):
    """A signal asks the run to end; no Exception, as nothing that handles faults may swallow it."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise :class:`Interrupted` when a signal arrives; only the main thread can catch signals."""
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
