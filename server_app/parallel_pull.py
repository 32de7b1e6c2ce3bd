"""Pulling replies side by side, so that one that is slow to arrive holds up few others.

A device announces its reply to the SuperLink, then sends the contents piece by piece. Flower's grid
takes what is announced and waits for the contents, one reply after the other, at least a second
for each that is not complete, and three minutes for a device that died in between.
"""

import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue

from flwr.app import Message
from flwr.serverapp import Grid

from ..strategies.federation.grids import GridWrapper

THREADS = 8  # that pull at a time
_LEAST = 16  # messages per thread, if there are so many: every pull is work for the SuperLink


class SideBySide(GridWrapper):
    """A grid that pulls replies in several threads.

    A call waits for the first of its threads at most ``wait`` seconds.
    """

    def __init__(self, grid: Grid, wait: float = 0.2) -> None:
        super().__init__(grid)
        self.wait = wait
        self._pulling: set[str] = set()  # messages whose replies a thread looks for now
        self._ended: SimpleQueue[tuple[list[str], list[Message] | Exception]] = SimpleQueue()
        self._threads = 0  # that have not ended

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, also those that an earlier call asked for."""
        asked = [each for each in message_ids if each not in self._pulling]
        parts = min(THREADS - self._threads, -(-len(asked) // _LEAST))
        for part in (asked[start::parts] for start in range(parts)):
            self._pulling.update(part)
            self._threads += 1
            # A thread that hangs must not keep the process from ending.
            threading.Thread(target=self._pull, args=(part,), daemon=True).start()
        replies: list[Message] = []
        wait = self.wait
        while self._threads:
            try:
                replies += self._taken(*self._ended.get(timeout=wait))
            except Empty:
                break
            wait = 0.0  # those that have ended meanwhile
        return replies

    def _pull(self, part: list[str]) -> None:
        try:
            self._ended.put((part, list(self.grid.pull_messages(part))))
        except Exception as error:  # raised again where it is waited for
            self._ended.put((part, error))

    def _taken(self, part: list[str], outcome: list[Message] | Exception) -> list[Message]:
        self._pulling.difference_update(part)
        self._threads -= 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
