"""What attackers cost, with and without a defence.

``python -m forager.benchmarks.security updates``

Every fifth client is hostile. ``updates``: attacks on what is aggregated, against quarantine's
bounds and robust aggregators; accuracy of the global model on clean test data. ``summaries``:
attackers that say whatever gets them chosen, against each rule of choice, and how many turns they
get. ``cohorts``: poisoned labels and faked affinity where clients gather in cohorts; accuracy of
the honest clients on their own test data, each with the model that it would use.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
from flwr.app import Context, Message

from ..client_app import app
from ..client_app.identity import client_key
from ..core.config import Scalar
from ..core.wire.events import Selected, as_events
from ..core.wire.keys import LOSS, METRICS, SIMILARITY
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import run_local
from .attacks import (
    UPDATES,
    Attack,
    fake_affinity,
    is_hostile,
    lying_about,
    poisoned_labels,
)

Config = dict[str, Scalar]

COMMON: Config = {
    "num-clients": 20,
    "num-server-rounds": 20,
    "partition": "dirichlet",
    "split.alpha": 1.0,
    "local-epochs": 2,
    "learning-rate": 0.1,
    "evaluate-every": 20,
    "report": False,
    "checkpoint.every": 0,
    "aggregation.malicious": 4,
    "aggregation.keep": 12,
}
DEFENCES: dict[str, Config] = {
    "mean": {},
    "tight bounds": {"quarantine.norm-factor": 3.0, "quarantine.count-factor": 5.0},
    "uniform weights": {"weighting": "uniform"},
    "median": {"aggregator": "median"},
    "trimmed mean": {"aggregator": "trimmed-mean", "aggregation.trim": 0.25},
    "multi-krum": {"aggregator": "multi-krum"},
}
SELECTORS: dict[str, tuple[str, Config]] = {
    "random": (SIMILARITY, {"client-selector": "random"}),
    "oldest first": (SIMILARITY, {"client-selector": "aoi"}),
    "cosage": (SIMILARITY, {"client-selector": "cosage"}),
    "cosage, half of them resting": (
        SIMILARITY,
        {"client-selector": "cosage", "cosage.silent-ratio": 0.5},
    ),
    "most dissimilar": (SIMILARITY, {"client-selector": "dissimilarity"}),
    "largest loss": (LOSS, {"client-selector": "local-loss"}),
    "power of choice": (LOSS, {"client-selector": "power-of-choice"}),
    "oort": (LOSS, {"client-selector": "oort"}),
}
PLANTED: Config = {
    "partition": "iid",
    "local-epochs": 5,
    "groups.kind": "label-permutation",
    "groups.count": 4,
    "cohort.number": 4,
    "cohort.first-clustering": 2,
    "cohort.first-split": 4,
    "cohort.min-participants": 3,
}


def final_accuracy(config: Config) -> float:
    """Run one training and return the accuracy of its last model on the server's test data."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = run_local({**config, "output-dir": folder}).rounds
    return float(rounds[-1]["accuracy"])


def turns_of_attackers(config: Config) -> tuple[float, float]:
    """Run one training; return its accuracy and the share of turns that attackers had."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_local({**config, "output-dir": folder})
        events = list(as_events(RunFolder.open(result.folder).read_events()))
    chosen = [key for event in events if isinstance(event, Selected) for key in event.chosen]
    share = sum(map(is_hostile, chosen)) / len(chosen)
    return float(result.rounds[-1]["accuracy"]), share


def honest_accuracy(config: Config) -> float:
    """Run one training; return the mean accuracy of honest clients on their own test data."""
    own = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
    with tempfile.TemporaryDirectory() as folder, _heard() as heard:
        run_local({**config, **own, "output-dir": folder})
    return float(np.mean([a for key, a in heard.items() if not is_hostile(key)]))


@contextmanager
def _heard() -> Iterator[dict[str, float]]:
    """Yield what clients find when they evaluate, the last answer of each."""
    honest, heard = app.HANDLERS["evaluate"], dict[str, float]()

    def handle(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        replies = list(honest(messages, contexts))
        for context, reply in zip(contexts, replies, strict=True):
            metrics = reply.content.metric_records[METRICS]
            heard[client_key(context)] = float(str(metrics["accuracy"]))
        return replies

    app.HANDLERS["evaluate"] = handle
    try:
        yield heard
    finally:
        app.HANDLERS["evaluate"] = honest


def _over_seeds(
    seeds: int, attack: Attack | None, run: Callable[[Config], float], config: Config
) -> str:
    """Return mean and spread over seeds, as a cell of a table."""
    found = []
    for seed in range(seeds):
        with attack() if attack else nullcontext():
            found.append(run({**COMMON, **config, "seed": seed}))
    spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
    return f"{np.mean(found):.3f} ± {spread:.3f}"


def _row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def updates(seeds: int, only: Sequence[str] = ()) -> None:
    """Print attacks by defences, all of them or only some."""
    _row("attack", *DEFENCES)
    _row(*["---"] * (1 + len(DEFENCES)))
    for name in only or UPDATES:
        attack = UPDATES[name]
        everyone: Config = {"client-selector": "all"}
        cells = [
            _over_seeds(seeds, attack, final_accuracy, {**everyone, **defence})
            for defence in DEFENCES.values()
        ]
        _row(name, *cells)


def summaries(seeds: int) -> None:
    """Print what lies about summaries bring under each rule of choice."""
    _row("rule", "no attack", "they only flip", "they also lie", "their share of turns")
    _row(*["---"] * 5)
    rounds: Config = {"clients-per-round": 5, "num-server-rounds": 40, "evaluate-every": 40}
    for name, (wants, selector) in SELECTORS.items():
        config = {**rounds, **selector}
        flip = UPDATES["sign flipped"]
        shares: list[float] = []
        cells = [_over_seeds(seeds, attack, final_accuracy, config) for attack in (None, flip)]
        lie = partial(lying_about, wants)
        cells.append(_over_seeds(seeds, lie, partial(_noting, shares), config))
        _row(name, *cells, f"{np.mean(shares):.0%}")


def _noting(shares: list[float], config: Config) -> float:
    accuracy, share = turns_of_attackers(config)
    shares.append(share)
    return accuracy


def cohorts(seeds: int) -> None:
    """Print what poisoned labels and faked affinity do where clients gather in cohorts."""
    _row("attack", "way", "no attack", "attacked")
    _row(*["---"] * 4)
    alike = {**PLANTED, "groups.kind": "none"}
    ways: list[tuple[str, Attack, str, Config]] = [
        ("labels turned round", poisoned_labels, "one model", alike),
        ("labels turned round", poisoned_labels, "median", {**alike, "aggregator": "median"}),
        ("labels turned round", poisoned_labels, "auxo", {**alike, "cohorts": "auxo"}),
        (
            "labels turned round",
            poisoned_labels,
            "ifca, two models",
            {**alike, "cohorts": "ifca", "cohort.number": 2},
        ),
        ("labels turned round", poisoned_labels, "fl+hc", {**alike, "cohorts": "fl-hc"}),
        (
            "faked affinity, four groups",
            fake_affinity,
            "auxo, nobody barred",
            {**PLANTED, "cohorts": "auxo-paper", "cohort.lies-allowed": 1000},
        ),
        (
            "faked affinity, four groups",
            fake_affinity,
            "auxo, barred after 3 lies",
            {**PLANTED, "cohorts": "auxo-paper", "cohort.lies-allowed": 3},
        ),
    ]
    for name, attack, way, config in ways:
        own = {**config, "client-selector": "all"}
        cells = [_over_seeds(seeds, each, honest_accuracy, own) for each in (None, attack)]
        _row(name, way, *cells)


TABLES: dict[str, Callable[[int], None]] = {
    "updates": updates,
    "summaries": summaries,
    "cohorts": cohorts,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one of the tables, mean and spread over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=UPDATES, default=(), help="of updates")
    options = parser.parse_args(arguments)
    if options.what == "updates":
        updates(options.seeds, options.only)
    else:
        TABLES[options.what](options.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
