"""The number of releases of each client: an account that only grows, even after a roll-back."""

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path


class Releases:
    """Count releases by client, in memory and in a file to which lines are only ever added.

    A line is on the disk before :meth:`charge` returns, and so before anything is sent. A run that
    is resumed from an earlier round has released what it released: the file still says so. What the
    file holds already counts.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.counts: Counter[str] = Counter()
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                self.counts.update(_charged(line))

    @property
    def most(self) -> int:
        """Releases of whoever has most."""
        return max(self.counts.values(), default=0)

    @property
    def mean(self) -> float:
        """Releases of a client that has any."""
        return self.counts.total() / max(1, len(self.counts))

    def charge(self, server_round: int, clients: Collection[str]) -> None:
        """Count one more release of each; an error if that cannot be written down."""
        if self._path is not None:
            line = json.dumps({"round": server_round, "clients": list(clients)})
            with open(self._path, "ab") as file:
                file.write(f"\n{line}\n".encode())  # whatever a crash has torn stays alone
                file.flush()
                os.fsync(file.fileno())
        self.counts.update(clients)

    def at_least(self, counts: Mapping[str, int]) -> None:
        """Count no less than a checkpoint does, whose run may have had no file."""
        self.counts |= Counter(counts)


def _charged(line: bytes) -> list[str]:
    """Return who is charged by a line; nobody by a torn one, after which nothing was sent."""
    try:
        told = json.loads(line)
    except ValueError:
        return []
    return [str(client) for client in told["clients"]] if isinstance(told, dict) else []
