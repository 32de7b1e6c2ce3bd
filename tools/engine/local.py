"""One federated training in this process: what ``flwr run`` would do, without its processes."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.config import ConfigError, RunConfig, Scalar, default_config, read_config
from ...core.config.combinations import check_simulated
from ...core.tasks import load_task
from ...server_app.app import configure_logging, run
from ...strategies.aggregation.flower_aggregator import quick_collections
from ..report.history import History
from .local_grid import LocalGrid


@dataclass(frozen=True)
class LocalResult:
    """What a run on the local engine left behind."""

    folder: Path
    reason: str
    rounds: list[dict[str, Any]]


def run_local(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training on the local engine, with these keys of the run config set."""
    configure_logging(logging.WARNING if quiet else logging.INFO)
    run_config = {**default_config(), **overrides}
    config = read_config(run_config)
    check_partitions(config)
    grid = LocalGrid.of_run(config, run_config)
    with quick_collections():
        folder, reason = run(grid, run_config)
    rows = History.from_events(folder.read_events()).rows
    return LocalResult(folder.path, reason, [{"round": n, **rows[n]} for n in sorted(rows)])


def check_partitions(config: RunConfig) -> None:
    """Refuse data and settings that do not suit simulated clients, or leave nothing to test on."""
    check_simulated(config)
    held = load_task(config.task_spec()).client_data(0, config.num_clients)
    if config.fraction_evaluate and not config.data.client_test_share and not len(held.test):
        raise ConfigError(
            f"fraction-evaluate = {config.fraction_evaluate}: clients have no test data; set "
            "data.client-test-share, such as 0.2, to hold out a share of theirs"
        )
