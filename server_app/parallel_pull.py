"""Pulling replies side by side, so that one that is slow or rubbish harms no other.

Flower's grid takes all that is announced and waits for the objects, one reply after the other, and
three minutes for a device that died in between. Nobody has looked at what is made of the objects.
"""

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from ..core.wire.flower_private import announced_replies, is_busy, is_lost_connection, is_remote
from ..core.wire.records import answered_id, sender_of
from ..core.wire.replies import Replies
from ..core.wire.salt import salted, unsalted
from ..strategies.federation.grids import GridWrapper

THREADS = 8  # that pull at a time
_LEAST = 16  # messages per thread, if there are so many: every pull is work for the SuperLink
_PATIENCE = 5.0  # seconds that a thread waits for one reply before it goes on to the next

Fetch = Callable[[], list[Message]]


class SideBySide(GridWrapper):
    """A grid that pulls in threads; a call waits for the first of them at most ``wait`` seconds."""

    def __init__(self, grid: Grid, wait: float = 0.2) -> None:
        super().__init__(grid)
        self.wait = wait
        self._pulling: set[str] = set()  # messages whose replies a thread looks for now
        self._came: SimpleQueue[tuple[list[str], list[Message] | Exception]] = SimpleQueue()
        self._threads = threading.Semaphore(THREADS)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, in objects that nobody could foresee."""
        return self.grid.push_messages(salted(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, also those that an earlier call asked for."""
        asked = [each for each in message_ids if each not in self._pulling]
        parts = min(THREADS, -(-len(asked) // _LEAST))
        for part in (asked[start::parts] for start in range(parts)):
            if not self._threads.acquire(blocking=False):
                break
            self._pulling.update(part)
            _start(self._pull, part)
        replies: list[Message] = []
        wait = self.wait if self._pulling else 0.0
        while True:
            try:
                ids, outcome = self._came.get(timeout=wait)
            except Empty:
                return replies
            self._pulling.difference_update(ids)
            if isinstance(outcome, Exception):
                raise outcome
            replies += outcome
            wait = 0.0  # those that have come meanwhile

    def _pull(self, part: list[str]) -> None:
        left = set(part)
        try:
            if is_remote(self.grid):
                for head, fetch in announced_replies(self.grid, part):
                    if (answered := answered_id(head)) in left:  # else nobody asked for it
                        left.discard(answered)
                        _start(self._fetch, head, fetch).join(_PATIENCE)
                self._came.put((list(left), []))
            else:
                self._came.put((part, list(self.grid.pull_messages(part))))
        except Exception as error:  # raised where it is waited for, unless it can be tried again
            self._came.put((list(left), [] if is_busy(error) else error))
        finally:
            self._threads.release()

    def _fetch(self, head: Message, fetch: Fetch) -> None:
        try:
            self._came.put(([answered_id(head)], [sound(head, fetch)]))
        except Exception as error:  # as above
            self._came.put(([answered_id(head)], error))


def sound(head: Message, fetch: Fetch) -> Message:
    """Return the reply that was announced; an error of who announced it if it is another thing."""
    try:
        (reply,) = fetch()
        if answered_id(reply) != answered_id(head):
            raise ValueError("it answers another message than announced")
        if reply.has_error():
            return reply
        if sender_of(reply) != sender_of(head):
            raise ValueError("it names another node as its sender")
        if not isinstance(reply.content, RecordDict):
            raise TypeError(f"its content is a {type(reply.content).__name__}")
        Replies.of(unsalted(reply))
        return reply
    except Exception as error:  # whatever a node put there
        if is_lost_connection(error):
            raise
        reason = f"a reply that cannot be read: {type(error).__name__}: {error}"
        head.__dict__.update(_content=None, _error=Error(0, reason))
        return head


def _start(work: Callable[..., None], *arguments: object) -> threading.Thread:
    """Start a thread that, if it hangs, does not keep the process from ending."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
