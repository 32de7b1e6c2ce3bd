"""A worker that stays: it holds torch and the device's data from one message to the next.

Flower starts a process for every message, and most of what that does is to import torch. On a
device with a ``state-dir``, the first process starts a worker, and all hand it their messages over
a socket there. ``resident-seconds`` says how long it stays without a message; 0 does without.

- It serves the user it runs as and nobody else: the socket has mode 0600, and both sides look who
  is at the other end. What is sent are Flower's own messages; nothing is unpickled.
- It ends with the SuperNode, and when app, Python or data have changed.
- It answers one message at a time, at most once, and ends when nobody waits for the answer.

Linux only: elsewhere, and without a worker, every process answers by itself.
"""

import hashlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from flwr.app import Context, Error, Message

from ...core.wire.flower_private import (
    context_from_bytes,
    context_to_bytes,
    message_from_bytes,
    message_to_bytes,
)
from .state import state_path


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield the address of a socket, however long its path: an address has 107 bytes at most."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(end: socket.socket) -> Connection | None:
    """Return a connected socket as a connection; None if another user is at the other end."""
    with end:
        credentials = struct.Struct("iII")
        found = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        same_user = credentials.unpack(found)[1] == os.getuid()
        return Connection(end.detach()) if same_user else None


_START_SECONDS = 60.0
_LONGEST = 86_400
_USUAL = 600
ACCEPTED = b"A"
_RAISED = 2  # Flower's code for an exception in a ClientApp


def idle_seconds(context: Context) -> int:
    """Return how long a worker of this device may idle; 0 if it is not to have one."""
    usual = _USUAL if context.node_config.get("state-dir") else 0
    wanted = context.node_config.get("resident-seconds", usual)
    if type(wanted) is not int or not 0 <= wanted <= _LONGEST:
        raise ValueError(
            f"node config: resident-seconds = {wanted!r}: expected 0 to {_LONGEST} whole seconds"
        )
    if wanted and not context.node_config.get("state-dir"):
        raise ValueError(f"node config: resident-seconds = {wanted} needs a state-dir")
    return wanted if sys.platform == "linux" and hasattr(os, "pidfd_open") else 0


def ask(message: Message, context: Context) -> Message | None:
    """Return the worker's answer; None if there is no worker, and nothing was done."""
    version = _version(context)
    request = [version.encode(), message_to_bytes(message), context_to_bytes(context)]
    for _ in range(2):
        connection = _connect(context) or _start(context, version)
        if connection is None:
            return None
        with connection:
            try:
                for part in request:
                    connection.send_bytes(part)
                accepted = connection.recv_bytes() == ACCEPTED
            except (EOFError, OSError):
                accepted = False
            if accepted:
                return _take_answer(connection, message, context)
    return None


def _take_answer(connection: Connection, message: Message, context: Context) -> Message:
    try:
        reply, after = connection.recv_bytes(), connection.recv_bytes()
    except (EOFError, OSError):
        # It may have changed what the device remembers: the message is not answered twice.
        return Message(Error(_RAISED, "the worker ended while it was at work"), reply_to=message)
    context.state = context_from_bytes(after).state
    return message_from_bytes(reply)


def _version(context: Context) -> str:
    """Return what a worker must have been started with: app, programs, and data as they are."""
    data = Path(str(context.node_config.get("data-path", "/nowhere")))
    files = sorted(data.glob("*.npz")) if data.is_dir() else [data] if data.exists() else []
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    known = repr((_app(), sys.version, sorted(context.node_config.items()), seen))
    return hashlib.blake2b(known.encode(), digest_size=8).hexdigest()


def _app() -> str:
    """Return the folder of the run's app, which Flower names by its hash and imports from first."""
    return os.path.abspath(sys.path[0])


def socket_path(context: Context) -> Path:
    """Return where the worker of a client listens."""
    state = state_path(context)
    assert state is not None, "a worker needs a state-dir"
    return state.with_suffix(".sock")


def _connect(context: Context) -> Connection | None:
    with socket.socket(socket.AF_UNIX) as end:
        try:
            with address(socket_path(context)) as place:
                end.connect(place)
        except OSError:  # nobody listens
            return None
        return connected(end)


def _start(context: Context, version: str) -> Connection | None:
    """Start a worker and wait until it listens; None if it does not."""
    path = socket_path(context)
    path.parent.mkdir(parents=True, exist_ok=True)
    supernode = os.pidfd_open(os.getppid())
    command = [
        sys.executable,
        "-m",
        "forager.client_app.device.resident_worker",
        str(path.absolute()),
        version,
    ]
    command += [str(supernode), str(idle_seconds(context))]
    try:
        search = os.pathsep.join(filter(None, [_app(), os.environ.get("PYTHONPATH")]))
        worker = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": search},
            pass_fds=[supernode],
            stdin=subprocess.DEVNULL,
        )
    finally:
        os.close(supernode)
    deadline = time.monotonic() + _START_SECONDS
    while worker.poll() is None and time.monotonic() < deadline:
        connection = _connect(context)
        if connection is not None:
            return connection
        time.sleep(0.02)
    return None
