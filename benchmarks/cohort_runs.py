"""Runs on the local engine whose rows also tell what became of cohorts.

A runner for :func:`tools.experiments.sweep.sweep`. Its rows have more columns: ``cohorts`` (how
many), ``ari`` (adjusted Rand index of the cohorts and the planted groups, where there are any),
``simulated`` (seconds on the simulated clock so far) and ``epsilon`` (of the most exposed client,
where updates are private). Three keys of its own make clients unreliable: ``records-lost`` is the
share of visits at which a client has lost its affinity records, ``unstable`` the share of clients
that always have, ``corrupted`` the share that train on random labels.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sklearn.metrics import adjusted_rand_score

from ..core.config import Scalar, read_config
from ..core.log.events import CohortsTrained, Exchanged, PrivacySpent, as_events
from ..core.tasks.groups import group_of
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import LocalResult, run_local
from .unreliable import chosen_clients, corrupted_clients, forgetful_clients

RUNNER = "forager.benchmarks.cohort_runs:run_with_cohorts"


def run_with_cohorts(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training as :func:`forager.tools.engine.local.run_local` does."""
    own = {"records-lost": 0.0, "unstable": 0.0, "corrupted": 0.0}
    lost, unstable, corrupted = (float(overrides.get(key, default)) for key, default in own.items())
    overrides = {key: value for key, value in overrides.items() if key not in own}
    config = read_config(overrides)
    losing = chosen_clients(unstable, config.num_clients)
    with (
        forgetful_clients(lost, config.seed, losing),
        corrupted_clients(corrupted, config.num_clients),
    ):
        result = run_local({**overrides, "report": False}, quiet=quiet)
    planted = config.groups.kind != "none" or config.partition == "class-groups"
    count = config.groups.count if planted else 0
    more = cohort_columns(RunFolder.open(result.folder).read_events(), count)
    rows = [{**row, **more.get(int(row["round"]), {})} for row in result.rounds]
    return LocalResult(result.folder, result.reason, rows)


def cohort_columns(log: Iterable[Mapping[str, Any]], groups: int) -> dict[int, dict[str, float]]:
    """Return the additional columns by round; ``groups`` is 0 where the truth is not known.

    >>> columns = cohort_columns([
    ...     {"event": "exchange", "round": 1, "simulated-seconds": 2.5},
    ...     {"event": "cohorts", "round": 1, "members": {"0.0": 2, "0.1": 2},
    ...      "moved": {"0": "0.0", "1": "0.1", "2": "0.0", "3": "0.1"}},
    ... ], groups=2)
    >>> columns[1]
    {'simulated': 2.5, 'cohorts': 2, 'ari': 1.0}
    """
    rows: dict[int, dict[str, float]] = {}
    where: dict[str, str] = {}
    clock = 0.0
    for event in as_events(log):
        row = rows.setdefault(event.round, {}) if event.round is not None else {}
        if isinstance(event, Exchanged):
            clock += event.simulated_seconds or 0.0
            row["simulated"] = clock
        elif isinstance(event, PrivacySpent) and event.epsilon_most is not None:
            row["epsilon"] = event.epsilon_most
        elif isinstance(event, CohortsTrained):
            where |= event.moved
            row["cohorts"] = len(event.members)
            if groups:
                truth = [group_of(int(key), groups) for key in where]
                row["ari"] = float(adjusted_rand_score(truth, list(where.values())))
    return rows
