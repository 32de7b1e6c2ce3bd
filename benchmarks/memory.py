"""Memory of the server while it aggregates many replies of a large model.

``python -m forager.benchmarks.memory`` runs one round in a process of its own for each way of
aggregating, and prints by how much its peak memory rises above what it held before the round.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, Strategy

from ..core.wire.arrays import to_record
from ..core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ..strategies.aggregation.flower_aggregator import FlowerAggregator
from ..tools.engine.local_grid import LocalGrid

_WAYS: dict[str, Strategy] = {
    "Flower's FedAvg": FedAvg(min_train_nodes=1, min_available_nodes=1),
    "FedAvg, streamed": FlowerAggregator(
        FedAvg(min_train_nodes=1, min_available_nodes=1), mean_like=True
    ),
    "median (needs all)": FlowerAggregator(
        FedMedian(min_train_nodes=1, min_available_nodes=1), mean_like=False
    ),
}


def replies(messages: list[Message], size: int) -> Iterator[Message]:
    """Yield a reply of ``size`` parameters to every message, made when it is asked for."""
    rng = np.random.default_rng(0)
    for message in messages:
        content = RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: 10})})
        content[ARRAYS] = to_record({"w": rng.random(size, dtype=np.float32)})
        yield Message(content, reply_to=message)


def peak_megabytes() -> float:
    """Return the largest memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_round(way: str, count: int, size: int) -> float:
    """Return by how many MB the peak rises while a round is aggregated."""
    strategy = _WAYS[way]
    grid = LocalGrid(count, {})
    model: ArrayRecord = to_record({"w": np.zeros(size, np.float32)})
    messages = list(strategy.configure_train(1, model, ConfigRecord(), grid))
    before = peak_megabytes()
    arrays, _ = strategy.aggregate_train(1, replies(messages, size))
    assert arrays is not None
    return peak_megabytes() - before


def main() -> None:
    """Measure every way in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1000)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--way", choices=list(_WAYS), help="measure this one, here")
    arguments = parser.parse_args()
    if arguments.way:
        print(f"{one_round(arguments.way, arguments.replies, arguments.parameters):.0f}")
        return
    dense = 4 * arguments.parameters * arguments.replies / 2**20
    size = f"{arguments.replies} replies of {arguments.parameters:,} parameters, {dense:.0f} MB"
    print(f"| aggregator | peak memory rises by, with {size} |\n| --- | --- |")
    sizes = ["--replies", str(arguments.replies), "--parameters", str(arguments.parameters)]
    for way in _WAYS:
        command = [sys.executable, "-m", "forager.benchmarks.memory", "--way", way, *sizes]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(f"| {way} | {float(output):.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
