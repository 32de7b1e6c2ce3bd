"""Talking to another process of the same user over a Unix socket."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LENGTH = struct.Struct("<Q")


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield the address of a socket, however long its path: an address has 107 bytes at most."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def same_user(connection: socket.socket) -> bool:
    """Tell whether the process at the other end runs as this one's user."""
    credentials = struct.Struct("iII")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return bool(credentials.unpack(found)[1] == os.getuid())


def send(connection: socket.socket, *parts: bytes) -> None:
    """Send some byte strings."""
    for part in parts:
        connection.sendall(_LENGTH.pack(len(part)) + part)


def receive(connection: socket.socket, count: int) -> list[bytes]:
    """Return as many byte strings as were sent; EOFError if the other end goes before that."""
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
