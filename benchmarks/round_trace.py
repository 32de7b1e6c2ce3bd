"""How much code one round goes through: files, edges between them, and crossings.

``python -m forager.benchmarks.round_trace`` plays five rounds of a preset on the local engine, with
the default run config (ten clients, five of them per round), evaluation and a checkpoint in every
round, and traces the fifth. A *file* is one of the product that runs; an *edge* is a file that
calls another, directly or through a library in between; a *crossing* is one such call.
"""

import argparse
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..core.config import default_config
from ..server_app.app import build_loop, configure_logging
from ..tools.engine.local_grid import LocalGrid
from ..tools.experiments.provenance import ROOT
from ..tools.experiments.tables import Table

PRESETS = ("fedavg", "cosage", "gcfl", "ode", "auxo")
PRODUCT = frozenset({"core", "strategies", "selectors", "client_app", "server_app", "tools"})
_WARM = 4  # rounds before the one that is traced


@dataclass(frozen=True)
class Trace:
    """What ran in one round, by paths below the root."""

    files: frozenset[str]
    calls: Counter[tuple[str, str]]  # from a file to another

    @property
    def crossings(self) -> int:
        """How often one file called another."""
        return self.calls.total()

    def busiest(self, count: int) -> list[tuple[str, int]]:
        """Return the files that are called most often by others."""
        into: Counter[str] = Counter()
        for (_, callee), times in self.calls.items():
            into[callee] += times
        return into.most_common(count)


@cache
def product_file(path: str) -> str:
    """Return a path below the root if it is one of the product, nothing otherwise.

    >>> product_file(str(ROOT / "core" / "log" / "events.py")), product_file(tempfile.__file__)
    ('core/log/events.py', '')
    """
    file = Path(path)
    if not file.is_relative_to(ROOT) or file.relative_to(ROOT).parts[0] not in PRODUCT:
        return ""
    return file.relative_to(ROOT).as_posix()


def trace(work: Callable[[], Any]) -> Trace:
    """Return which files of the product some work runs, and which calls which."""
    files: set[str] = set()
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        callee = product_file(frame.f_code.co_filename) if event == "call" else ""
        if not callee:
            return
        files.add(callee)
        above = frame.f_back
        while above is not None and not product_file(above.f_code.co_filename):
            above = above.f_back
        if above is not None and (caller := product_file(above.f_code.co_filename)) != callee:
            calls[caller, callee] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Trace(frozenset(files), calls)


def trace_round(preset: str) -> Trace:
    """Return the trace of the fifth round of a run of a preset."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            **default_config(),
            "strategy": preset,
            "output-dir": folder,
            "num-server-rounds": 10**6,
            "evaluate-every": 1,
            "checkpoint.every": 1,
        }
        _, loop = build_loop(LocalGrid(int(config["num-clients"]), config), config)
        for _ in range(_WARM):
            loop.play_round()
        return trace(loop.play_round)


def main() -> None:
    """Print a table; on request the files that are called most."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.benchmarks.round_trace",
        description="How many files does a round go through?",
    )
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--busiest", type=int, default=0, help="name this many files of each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    configure_logging(logging.WARNING)
    traces = {preset: trace_round(preset) for preset in options.presets}
    rows = [["preset", "files", "edges", "crossings"]]
    for preset, found in traces.items():
        rows.append([preset, *map(str, (len(found.files), len(found.calls), found.crossings))])
    print(Table(rows).markdown())
    for preset, found in traces.items() if options.busiest else ():
        print(f"\n{preset}: calls from other files")
        for file, times in found.busiest(options.busiest):
            print(f"  {times:6}  {file}")


if __name__ == "__main__":
    main()
