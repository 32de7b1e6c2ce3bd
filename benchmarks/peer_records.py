"""What other frameworks take for the same work, as recorded by the scripts in ``benchmarks/peers``.

``benchmarks/records/peers.jsonl`` has one line per recorded run. The newest of each framework is
shown in ``docs/results/speed.md``.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..tools.experiments.provenance import ROOT

RECORDS = ROOT / "benchmarks" / "records" / "peers.jsonl"


@dataclass(frozen=True)
class PeerRecord:
    """One run of one framework."""

    date: str
    peer: str
    version: str
    ratio: float  # median seconds of a round, by those of the bare loop
    cpu_ratio: float  # the same of the seconds of work of its process
    rounds: int
    load: float  # processes that wanted a core when the run began, over the last minute
    cores: int


def read_peers(path: Path = RECORDS) -> list[PeerRecord]:
    """Return all records, the oldest first."""
    return [PeerRecord(**json.loads(line)) for line in path.read_text().splitlines() if line]


def peers_table(records: Sequence[PeerRecord]) -> str:
    """Return the newest record of each framework as a table, the fastest first.

    >>> print(peers_table([PeerRecord("2026-01-01", "x", "1.2", 1.234, 1.1, 12, 0.1, 2)]))
    | framework | round / bare loop | work of its process / bare loop | date | load before |
    | --- | --- | --- | --- | --- |
    | x 1.2 | 1.23 | 1.1 | 2026-01-01 | 0.1 on 2 cores |
    """
    newest = {record.peer: record for record in records}
    lines = [
        "| framework | round / bare loop | work of its process / bare loop | date | load before |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r.peer} {r.version} | {r.ratio:.3g} | {r.cpu_ratio:.3g} | {r.date} | "
        f"{r.load:g} on {r.cores} cores |"
        for r in sorted(newest.values(), key=lambda r: r.ratio)
    ]
    return "\n".join(lines)
