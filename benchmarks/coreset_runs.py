"""Runs on the local engine whose rows also tell what clients trained on.

A runner for :func:`tools.experiments.sweep.sweep`. Its rows have more columns: ``clean-share`` (of
the samples trained on, where noise is simulated), ``coreset-size`` (of all clients of the round
together), ``choose-seconds`` (clients and server, choosing), ``train-seconds`` (clients, the rest)
and ``bytes-guidance`` (part of ``bytes-down``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.config import Scalar
from ..core.log.events import CoresetsUsed, Exchanged, as_events
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import LocalResult, run_local

RUNNER = "forager.benchmarks.coreset_runs:run_with_coresets"


def run_with_coresets(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training as :func:`forager.tools.engine.local.run_local` does."""
    result = run_local(overrides, quiet=quiet)
    more = coreset_columns(RunFolder.open(result.folder).read_events())
    rows = [{**row, **more.get(int(row["round"]), {})} for row in result.rounds]
    return LocalResult(result.folder, result.reason, rows)


def coreset_columns(log: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """Return the additional columns by round.

    >>> told = {"sizes": [3, 5], "clean-share": 0.5, "seconds": 1.0, "server-seconds": 0.5}
    >>> coreset_columns([
    ...     {"event": "exchange", "kind": "train", "round": 1, "seconds": 4.0},
    ...     {"event": "coresets", "round": 1, **told, "guidance-bytes": 8},
    ... ])[1]
    {'choose-seconds': 1.5, 'train-seconds': 3.0, 'coreset-size': 8, 'clean-share': 0.5, \
'bytes-guidance': 8}
    """
    rows: dict[int, dict[str, float]] = {}
    for event in as_events(log):
        current = event.round or 0
        if isinstance(event, Exchanged) and event.kind == "train":
            rows[current] = {"choose-seconds": 0.0, "train-seconds": event.seconds or 0.0}
        elif isinstance(event, CoresetsUsed):
            row, seconds = rows[current], event.seconds or 0.0
            row["choose-seconds"] = seconds + (event.server_seconds or 0.0)
            row["train-seconds"] -= seconds
            row["coreset-size"] = sum(event.sizes)
            if event.clean_share is not None:
                row["clean-share"] = event.clean_share
            row["bytes-guidance"] = event.guidance_bytes
    return rows
