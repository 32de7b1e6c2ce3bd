"""What attackers cost, with and without a defence: ``python -m benchmarks.security``.

Every fifth client is hostile. Each attack meets the plain mean, the mean behind quarantine's norm
bound at a tighter factor, robust aggregators and cohorts. Accuracy is that of the global model on
clean test data (with cohorts: of the models, weighted by their members).
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Context, Message

from client_app import app
from client_app.identity import client_key
from server_app.config import Scalar
from server_app.local import run_local
from wire.arrays import from_record, to_record
from wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from wire.records import sent_arrays

Arrays = dict[str, Any]
Attack = Callable[[Arrays, Arrays, Message], Arrays]

EVERY = 5  # one client of so many is hostile
COMMON: dict[str, Scalar] = {
    "num-clients": 20,
    "client-selector": "all",
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
DEFENCES: dict[str, dict[str, Scalar]] = {
    "mean": {},
    "tight norm bound": {"quarantine.norm-factor": 3.0},
    "uniform weights": {"weighting": "uniform"},
    "median": {"aggregator": "median"},
    "trimmed mean": {"aggregator": "trimmed-mean", "aggregation.trim": 0.25},
    "multi-krum": {"aggregator": "multi-krum"},
}


def _changed(before: Arrays, after: Arrays, change: Callable[[Any], Any]) -> Arrays:
    return {name: before[name] + change(after[name] - before[name]) for name in before}


def flip(before: Arrays, after: Arrays, reply: Message) -> Arrays:
    """Go the other way."""
    return _changed(before, after, lambda c: -c)


def boost(before: Arrays, after: Arrays, reply: Message) -> Arrays:
    """Go the other way, ten times as far."""
    return _changed(before, after, lambda c: -10 * c)


def noise(before: Arrays, after: Arrays, reply: Message) -> Arrays:
    """Send noise as large as the update."""
    rng = np.random.default_rng(abs(hash(str(reply.metadata.src_node_id))) % 2**32)
    return _changed(before, after, lambda c: rng.normal(scale=c.std() + 1e-6, size=c.shape))


def not_a_number(before: Arrays, after: Arrays, reply: Message) -> Arrays:
    """Send what is not finite."""
    return {name: np.full_like(array, np.nan) for name, array in after.items()}


def lie_about_size(before: Arrays, after: Arrays, reply: Message) -> Arrays:
    """Go the other way and claim to hold a hundred times the data."""
    metrics = reply.content.metric_records[METRICS]
    metrics[NUM_EXAMPLES] = 100 * int(float(str(metrics[NUM_EXAMPLES])))
    return _changed(before, after, lambda c: -c)


ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "sign flipped": flip,
    "flipped and boosted": boost,
    "noise": noise,
    "not a number": not_a_number,
    "lies about its size": lie_about_size,
}


def hostile(attack: Attack) -> app.Handler:
    """Return a training handler whose every fifth client attacks."""
    honest = app.HANDLERS["train"]

    def train(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        replies = honest(messages, contexts)
        for message, context, reply in zip(messages, contexts, replies, strict=True):
            if int(client_key(context)) % EVERY == 0 and not reply.has_error():
                before = from_record(sent_arrays(message, ARRAYS))
                after = from_record(sent_arrays(reply, ARRAYS))
                spoilt = attack(before, after, reply)
                dtypes = {name: array.dtype for name, array in after.items()}
                spoilt = {n: np.asarray(a, dtype=dtypes[n]) for n, a in spoilt.items()}
                reply.content[ARRAYS] = to_record(spoilt)
        return replies

    return train


def accuracy(attack: Attack | None, config: dict[str, Scalar]) -> float:
    """Run one training under attack and return its final accuracy; 0 if it fails."""
    honest = app.HANDLERS["train"]
    if attack is not None:
        app.HANDLERS["train"] = hostile(attack)
    try:
        with tempfile.TemporaryDirectory() as folder:
            rounds = run_local({**config, "output-dir": folder}).rounds
        return float(rounds[-1]["accuracy"])
    finally:
        app.HANDLERS["train"] = honest


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table: attacks by defences, mean and spread over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    print("| attack | " + " | ".join(DEFENCES) + " |")
    print("| --- |" + " --- |" * len(DEFENCES))
    for name, attack in ATTACKS.items():
        cells = []
        for defence in DEFENCES.values():
            seeds = range(options.seeds)
            found = [accuracy(attack, {**COMMON, **defence, "seed": seed}) for seed in seeds]
            spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
            cells.append(f"{np.mean(found):.3f} ± {spread:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
