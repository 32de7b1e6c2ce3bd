"""The worker that stays on a device; :mod:`client_app.device.resident` starts it and says why."""

import os
import select
import socket
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from ...core.wire.flower_private import (
    TaskIdentity,
    context_from_bytes,
    context_to_bytes,
    message_from_bytes,
    message_to_bytes,
)
from ..app import answer_one
from ..handlers import training  # noqa: F401  (with torch, before anybody waits for it)
from .resident import ACCEPTED, address, connected


class Worker:
    """The process that stays."""

    def __init__(self, path: Path, version: str, supernode: int, idle: float) -> None:
        self.path, self.version, self.supernode, self.idle = path, version, supernode, idle

    def serve(self) -> None:
        """Answer messages until there is a reason to end."""
        with socket.socket(socket.AF_UNIX) as listening:
            self._listen(listening)
            events = select.poll()
            events.register(listening, select.POLLIN)
            events.register(self.supernode, select.POLLIN)
            going_on = True
            while going_on:
                ready = dict(events.poll(1000 * self.idle))
                if not ready or self.supernode in ready:
                    break
                connection = connected(listening.accept()[0])
                if connection is None:
                    continue
                with connection:
                    going_on = self._serve_one(connection)
                    if not going_on:
                        self.path.unlink(missing_ok=True)  # before the other side continues
        self.path.unlink(missing_ok=True)

    def _listen(self, listening: socket.socket) -> None:
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with address(self.path) as place:
                listening.bind(place)
        finally:
            os.umask(before)
        listening.listen(1)

    def _serve_one(self, connection: Connection) -> bool:
        """Answer one message; False if it is from another version."""
        try:
            version, message, context = (connection.recv_bytes() for _ in range(3))
            if version.decode() != self.version:
                return False
            connection.send_bytes(ACCEPTED)
            done = self._end_if_nobody_waits(connection)
            parts = _answered(message, context)
            done.set()
            for part in parts:
                connection.send_bytes(part)
        except (EOFError, OSError):  # the asking process is gone
            return True
        return True

    def _end_if_nobody_waits(self, connection: Connection) -> threading.Event:
        """End at once, as the asking process would, if it or the SuperNode is killed."""
        done = threading.Event()

        def watch() -> None:
            events = select.poll()
            events.register(connection, select.POLLRDHUP)
            events.register(self.supernode, select.POLLIN)
            while not done.is_set():
                if events.poll(200) and not done.is_set():
                    os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
        return done


def _answered(message: bytes, context: bytes) -> tuple[bytes, bytes]:
    asked = message_from_bytes(message)
    known = context_from_bytes(context)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = known.run_id, known.node_id, 1
    reply = answer_one(asked, known)
    return message_to_bytes(reply), context_to_bytes(known)


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])).serve()
