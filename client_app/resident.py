"""A worker that stays: it holds torch and the device's data from one message to the next.

Flower starts a process for every message, and most of what that process does is to import torch. On
a device whose node config has ``resident-seconds`` (and a ``state-dir``), the first process starts
a worker, and this and later ones hand their messages to it over a socket in ``state-dir``.

- It serves the user it runs as and nobody else: the socket has mode 0600, and both sides look who
  is at the other end. What is sent are Flower's own messages; nothing is unpickled.
- It ends with the SuperNode, after so many seconds without a message, and when a process comes that
  has another version of the app, another Python or changed data.
- It answers one message at a time, at most once. When the process that waits for the answer is
  killed, so is the work. When the worker cannot be had, the process answers by itself, as without.

Linux only: elsewhere every process answers by itself.
"""

import hashlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.common.serde import (  # what Flower itself sends messages by; there is no public name
    context_from_proto,
    context_to_proto,
    message_from_proto,
    message_to_proto,
)
from flwr.proto.message_pb2 import Context as ContextBytes
from flwr.proto.message_pb2 import Message as MessageBytes
from flwr.supercore.task_identity import TaskIdentity  # Message(...) refuses to work without one

from client_app.state import state_path

_APP = Path(__file__).resolve().parent.parent  # Flower names this folder by the app's hash
_START_SECONDS = 60.0
_LONGEST = 86_400
_ACCEPTED = b"A"
_RAISED = 2  # Flower's code for an exception in a ClientApp
_LENGTH = struct.Struct("<Q")


def idle_seconds(context: Context) -> int:
    """Return how long a worker of this device may idle; 0 if it is not to have one."""
    wanted = context.node_config.get("resident-seconds", 0)
    if type(wanted) is not int or not 0 <= wanted <= _LONGEST:
        raise ValueError(
            f"node config: resident-seconds = {wanted!r}: expected 0 to {_LONGEST} whole seconds"
        )
    if wanted and not context.node_config.get("state-dir"):
        raise ValueError(f"node config: resident-seconds = {wanted} needs a state-dir")
    return wanted if sys.platform == "linux" and hasattr(os, "pidfd_open") else 0


def ask(kind: str, message: Message, context: Context) -> Message | None:
    """Return the worker's answer; None if there is no worker to be had, and nothing was done."""
    version = _version(context)
    request = message_to_proto(message), context_to_proto(context)
    for _ in range(2):
        connection = _connect(context) or _start(context, version)
        if connection is None:
            return None
        with connection:
            try:
                _send(connection, version.encode(), kind.encode())
                _send(connection, *(part.SerializeToString() for part in request))
                accepted = connection.recv(1) == _ACCEPTED
            except OSError:
                accepted = False
            if accepted:
                return _take_answer(connection, message, context)
    return None


def _take_answer(connection: socket.socket, message: Message, context: Context) -> Message:
    try:
        reply, after = _receive(connection, 2)
    except (EOFError, OSError):
        # It may have changed what the device remembers: the message is not answered twice.
        return Message(Error(_RAISED, "the worker ended while it was at work"), reply_to=message)
    context.state = context_from_proto(ContextBytes.FromString(after)).state
    return message_from_proto(MessageBytes.FromString(reply))


def _version(context: Context) -> str:
    """Return what a worker must have been started with: app, programs, and data as they are."""
    data = Path(str(context.node_config.get("data-path", "/nowhere")))
    files = sorted(data.glob("*.npz")) if data.is_dir() else [data] if data.exists() else []
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    known = repr((str(_APP), sys.version, sorted(context.node_config.items()), seen))
    return hashlib.blake2b(known.encode(), digest_size=8).hexdigest()


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield the address of a socket, however long its path: an address has 107 bytes at most."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def socket_path(context: Context) -> Path:
    """Return where the worker of a client listens."""
    state = state_path(context)
    assert state is not None, "a worker needs a state-dir"
    return state.with_suffix(".sock")


def _connect(context: Context) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(socket_path(context)) as address:
            connection.connect(address)
    except OSError:  # nobody is there
        connection.close()
        return None
    if not _same_user(connection):
        connection.close()
        return None
    return connection


def _same_user(connection: socket.socket) -> bool:
    credentials = struct.Struct("iII")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return bool(credentials.unpack(found)[1] == os.getuid())


def _start(context: Context, version: str) -> socket.socket | None:
    """Start a worker and wait until it listens; None if it does not."""
    path = socket_path(context)
    path.parent.mkdir(parents=True, exist_ok=True)
    supernode = os.pidfd_open(os.getppid())
    command = [sys.executable, "-m", "client_app.resident", str(path.absolute()), version]
    command += [str(supernode), str(idle_seconds(context))]
    try:
        worker = subprocess.Popen(command, cwd=_APP, pass_fds=[supernode], stdin=subprocess.DEVNULL)
    finally:
        os.close(supernode)
    deadline = time.monotonic() + _START_SECONDS
    while worker.poll() is None and time.monotonic() < deadline:
        connection = _connect(context)
        if connection is not None:
            return connection
        time.sleep(0.02)
    return None


def _send(connection: socket.socket, *parts: bytes) -> None:
    for part in parts:
        connection.sendall(_LENGTH.pack(len(part)) + part)


def _receive(connection: socket.socket, count: int) -> list[bytes]:
    parts = []
    for _ in range(count):
        (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
        parts.append(_exactly(connection, length))
    return parts


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        some = connection.recv(min(2**20, length - len(data)))
        if not some:
            raise EOFError("the other end has gone")
        data += some
    return bytes(data)


class Worker:
    """The process that stays.

    Parameters
    ----------
    path : Path
        Where to listen.
    version : str
        What it was started with; a request of another version ends it.
    supernode : int
        Descriptor of the process that it ends with.
    idle : float
        Seconds without a message after which it ends.
    """

    def __init__(self, path: Path, version: str, supernode: int, idle: float) -> None:
        self.path, self.version, self.supernode, self.idle = path, version, supernode, idle

    def serve(self) -> None:
        """Answer messages until there is a reason to end."""
        from client_app import training  # noqa: F401  (with torch, before anybody waits for it)

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
                connection, _ = listening.accept()
                with connection:
                    going_on = self._serve_one(connection)
                    if not going_on:
                        self.path.unlink(missing_ok=True)  # before the other side goes on
        self.path.unlink(missing_ok=True)

    def _listen(self, listening: socket.socket) -> None:
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _address(self.path) as address:
                listening.bind(address)
        finally:
            os.umask(before)
        listening.listen(1)

    def _serve_one(self, connection: socket.socket) -> bool:
        """Answer one message; False if it is from another version."""
        if not _same_user(connection):
            return True
        try:
            version, kind, message, context = _receive(connection, 4)
            if version.decode() != self.version:
                return False
            connection.sendall(_ACCEPTED)
            done = self._end_if_nobody_waits(connection)
            answer = _answer(kind.decode(), message, context)
            done.set()
            _send(connection, *answer)
        except (EOFError, OSError):  # whoever asked has gone
            return True
        return True

    def _end_if_nobody_waits(self, connection: socket.socket) -> threading.Event:
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


def _answer(kind: str, message: bytes, context: bytes) -> tuple[bytes, bytes]:
    from client_app.app import answer

    asked = message_from_proto(MessageBytes.FromString(message))
    known = context_from_proto(ContextBytes.FromString(context))
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = known.run_id, known.node_id, 1
    (reply,) = answer(kind, [asked], [known])
    return (
        message_to_proto(reply).SerializeToString(),
        context_to_proto(known).SerializeToString(),
    )


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])).serve()
