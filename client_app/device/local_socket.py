"""Talking to another process of the same user over a Unix socket.

Byte strings are framed by the standard library's ``Connection``. Its methods that pickle are never
called.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path


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
