"""Runs on the local engine that also measure which labels the clients store.

This is a runner for :func:`tools.experiments.sweep.sweep`: its rows have more columns: ``labels``
that any client stores, and ``labels-per-client`` on average; the ``fewest-holders`` that the last
plan gives any label; the accuracy on each class (``class-0``, ...) and the lowest
(``worst-class``). It draws no report, which would take longer than a short run.
"""

import logging
from collections.abc import Sequence
from typing import Any

from flwr.app import ArrayRecord

from ..core.config import Scalar, default_config, read_config
from ..core.log.events import StoragePlanned, StreamsStored
from ..core.tasks import load_task
from ..server_app.app import build_loop, configure_logging
from ..server_app.callbacks.artifacts import Artifacts
from ..tools.engine.local import LocalResult
from ..tools.engine.local_grid import LocalGrid
from ..tools.report.history import History
from .worst_class import class_accuracies

RUNNER = "forager.benchmarks.stream_runs:run_stream"


class Unsaved(LocalGrid):
    """A grid whose clients are not put into checkpoints: reading all their stores takes time."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: no run goes on from here."""
        return {}


def run_stream(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training as :func:`tools.engine.local.run_local` does, and watch labels."""
    configure_logging(logging.WARNING if quiet else logging.INFO)
    run_config: dict[str, Any] = {**default_config(), **overrides}
    config = read_config(run_config)
    folder, loop = build_loop(Unsaved(config.num_clients, run_config), run_config)
    loop.callbacks = [part for part in loop.callbacks if not isinstance(part, Artifacts)]
    task = load_task(config.task_spec())
    model, test, plain = task.build_model(), task.server_data().test, loop.evaluate
    classes: dict[int, dict[str, float]] = {}

    def evaluate(arrays: ArrayRecord) -> dict[str, float]:
        found = class_accuracies(model, arrays, test)
        classes[loop.grid.round] = {f"class-{label}": share for label, share in found.items()}
        classes[loop.grid.round]["worst-class"] = min(found.values())
        return plain(arrays)

    loop.evaluate = evaluate
    reason = loop.run()
    history = History.from_events(folder.read_events())
    stored, rows = history.noted(StreamsStored), history.rows
    plan = history.last(StoragePlanned)
    fewest = {"fewest-holders": float(min(plan.holders))} if plan is not None else {}
    more = {n: _labels(stored.get(n, [])) | fewest | classes.get(n, {}) for n in rows}
    return LocalResult(
        folder.path, reason, [{"round": n, **rows[n], **more[n]} for n in sorted(rows)]
    )


def _labels(events: Sequence[StreamsStored]) -> dict[str, float]:
    """Return what the last event of a round says of the stored labels.

    >>> _labels([StreamsStored(stored=[4, 0, 2], classes=1.5)])
    {'labels': 2.0, 'labels-per-client': 1.5}
    """
    if not events:
        return {}
    labels = sum(count > 0 for count in events[-1].stored)
    return {"labels": float(labels), "labels-per-client": events[-1].classes or 0.0}
