"""Check whether a container works: exit code 0 if all checks given on the command line hold.

``grpc:PORT`` a gRPC server of this container answers; ``open:HOST:PORT`` somebody accepts
connections; ``server`` this container is connected to the port that ``SERVER`` names.

A probe runs four times a minute on small devices, so it imports next to nothing. That a port is
open does not say that the program behind it still runs: a gRPC server is made to answer.
"""

import os
import socket
import sys
from pathlib import Path

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # HTTP/2, no settings
_SETTINGS = 4  # the kind of frame that a server has to answer with
_ESTABLISHED = "01"
_SECONDS = 5.0


def speaks_grpc(port: int) -> bool:
    """Return whether an HTTP/2 server on loopback answers."""
    with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
        connection.sendall(_HELLO)
        head = connection.recv(9)
    return len(head) > 3 and head[3] == _SETTINGS


def is_open(host: str, port: int) -> bool:
    """Return whether something accepts connections there."""
    with socket.create_connection((host, port), _SECONDS):
        return True


def has_peer(port: int, tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> bool:
    """Return whether there is an established connection to a port elsewhere."""
    for table in tables:
        for line in Path(table).read_text().splitlines()[1:]:
            remote, state = line.split()[2:4]
            if state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) == port:
                return True
    return False


def holds(check: str) -> bool:
    """Return whether one check holds."""
    kind, _, target = check.partition(":")
    host, _, port = target.rpartition(":")
    if kind == "grpc":
        return speaks_grpc(int(port))
    if kind == "open":
        return is_open(host, int(port))
    return has_peer(int(os.environ["SERVER"].rpartition(":")[2]))


def main(checks: list[str]) -> int:
    """Run the checks and name those that fail."""
    failed = []
    for check in checks:
        try:
            if not holds(check):
                failed.append(check)
        except OSError as error:
            failed.append(f"{check} ({error})")
    print(f"failed: {', '.join(failed)}" if failed else "healthy")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
