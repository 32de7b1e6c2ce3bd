"""The runner of the studies: any of the benchmarks' runners, with rows short enough to keep.

Keys of a cell that begin with ``study.`` are read here and not passed on. ``study.data`` names a
prepared data set (`data.SOURCES`), ``study.pairs`` the share of its training labels that are one
class too high, ``study.spread`` the standard deviation of blobs, and ``study.devices`` whose speeds
devices have, so that a record holds no path. ``study.runner`` says which columns are measured
besides those of ``rounds.csv``.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ...core.config import Scalar
from ...tools.engine.local import LocalResult
from .data import blobs_file, paired_file, prepared
from .federations import all_are_tested, real_devices

RUNNER = "forager.benchmarks.studies.runs:run_study"
RUNNERS = {
    "plain": "forager.tools.engine.local:run_local",
    "coresets": "forager.benchmarks.coreset_runs:run_with_coresets",
    "streams": "forager.benchmarks.stream_runs:run_stream",
    "cohorts": "forager.benchmarks.cohort_runs:run_with_cohorts",
    "classes": "forager.benchmarks.worst_class:run_watched",
    "alignment": "forager.benchmarks.studies.alignment:run_alignment",
    "attacked": "forager.benchmarks.security:run_attacked",
    "values": "forager.benchmarks.studies.values:run_values",
    "two-forms": "forager.benchmarks.studies.two_forms:run_two_forms",
    "devices": "forager.benchmarks.studies.devices:run_device",
    "diagnosed": "forager.benchmarks.diagnosed:run_diagnosed",
}
COMMON: dict[str, Scalar] = {"checkpoint.every": 0, "report": False, "local.threads": 1}

Row = Mapping[str, Any]

ROWS = 26  # of a run, at most
_SUMMED = ("bytes-", "choose-seconds", "train-seconds")
_KEPT = (
    *("accuracy", "loss", "clients-accuracy-mean", "clients-accuracy-worst-10", "perplexity"),
    *("simulated", "cohorts", "ari", "clean-share", "worst-class", "fewest-holders", "labels"),
    *("rmse", "r2", "clients-rmse-mean", "clients-r2-mean", "clients-perplexity-mean"),
    *("epsilon", "R@", "tau", "JS", "silhouette", "bytes of"),
    *("agreement of", "ms of", "turns-hostile", "found "),
)


def cache_folder() -> Path:
    """Return where prepared data sets are kept."""
    return Path(os.environ.get("FORAGER_STUDY_CACHE", "sweeps/data")).resolve()


def run_study(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one cell of a study with one seed."""
    own = {key: str(value) for key, value in overrides.items() if key.startswith("study.")}
    config = {**COMMON, **{k: v for k, v in overrides.items() if k not in own}}
    if "study.data" in own:
        path = prepared(own["study.data"], cache_folder())
        if "study.pairs" in own:
            path = paired_file(path, float(own["study.pairs"]), int(config["seed"]))
        config |= {"task": "npz", "data.path": str(path)}
    if "study.spread" in own:
        path = blobs_file(float(own["study.spread"]), int(config["seed"]), cache_folder())
        config |= {"task": "npz", "data.path": str(path)}
    module, _, function = RUNNERS[own.get("study.runner", "plain")].partition(":")
    run = getattr(import_module(module), function)
    with ExitStack() as around:
        if "study.devices" in own:
            around.enter_context(real_devices())
        if own.get("study.data") == "heart":
            around.enter_context(all_are_tested())
        result = cast(LocalResult, run(config, quiet=quiet))
    return LocalResult(result.folder, result.reason, thinned(result.rounds))


def thinned(rows: Sequence[Row], most: int = ROWS) -> list[dict[str, Any]]:
    """Return the rounds that were evaluated, at most this many, with what the pages need.

    Bytes and seconds of the rounds left out are added to the next one that stays.

    >>> rows = [{"round": r, "bytes-up": 10, "accuracy": r / 8 if r % 2 == 0 else None}
    ...         for r in range(1, 7)]
    >>> thinned(rows, most=2)
    [{'round': 2, 'accuracy': 0.25, 'bytes-up': 20}, {'round': 6, 'accuracy': 0.75, 'bytes-up': 40}]
    """
    told = [n for n, row in enumerate(rows) if _evaluated(row) or n == len(rows) - 1]
    step = max(1, -(-len(told) // most))
    kept = {told[n] for n in range(len(told) - 1, -1, -step)} | ({told[0]} if told else set())
    short, sums = [], {}  # type: list[dict[str, Any]], dict[str, float]
    for position, row in enumerate(rows):
        for name, value in row.items():
            if name.startswith(_SUMMED) and value is not None:
                sums[name] = sums.get(name, 0) + value
        if position in kept:
            short.append({"round": row["round"], **_measured(row), **_plain(sums)})
            sums = {}
    return short


def _evaluated(row: Row) -> bool:
    return any(row.get(name) is not None for name in ("accuracy", "clients-accuracy-mean", "loss"))


def _measured(row: Row) -> dict[str, Any]:
    return _plain({k: v for k, v in row.items() if k.startswith(_KEPT) and v is not None})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Round to five digits: more would be noise, and the file twice as large."""
    return {k: v if isinstance(v, int) else float(f"{v:.5g}") for k, v in values.items()}
