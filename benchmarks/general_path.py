"""What generality costs: one's own loss and optimiser, lazy data, and a frozen backbone.

``python -m forager.benchmarks.general_path`` trains the CNN of ``small-cnn`` on one client in
several ways, in turn, and prints the CPU time of each as a ratio to the built-in way (the best of
several trials, on one thread). Then it prints the bytes of a client's update with a frozen backbone
of 4 M parameters and a head of 13 k, with and without what is frozen.
"""

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.config import RunConfig
from ..core.learning.job import Job
from ..core.learning.model_arrays import frozen_arrays, read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import TrainSettings
from ..core.learning.trainer import train_one
from ..core.tasks import Split
from ..core.tasks.lazy import LazySplit
from ..core.tasks.models import build_model
from ..core.tasks.problems import Classification, Problem
from ..core.wire.arrays import record_bytes, to_record


class OwnLoss(Classification):
    """Cross-entropy, as a user would write it."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")


def own_optimiser(parameters: list[Tensor], rate: float) -> torch.optim.Optimizer:
    """Return torch's SGD, as a user would choose it."""
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def measure(samples: int = 512, trials: int = 9) -> dict[str, float]:
    """Return CPU seconds of one epoch in each way, the best of some trials.

    >>> list(measure(32, 1))
    ['built in', 'own loss', 'own loss and optimiser', 'data set by DataLoader']
    """
    torch.set_num_threads(1)
    model = build_model("small-cnn", (1, 28, 28), 10)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(samples, 1, 28, 28, generator=generator)
    y = torch.randint(10, (samples,), generator=generator)
    held, lazy = Split(x, y), LazySplit(torch.utils.data.TensorDataset(x, y), "a data set")
    own = f"{__name__}:own_optimiser"
    ways: Mapping[str, tuple[Split | LazySplit, Problem, str]] = {
        "built in": (held, Classification(), "sgd"),
        "own loss": (held, OwnLoss(), "sgd"),
        "own loss and optimiser": (held, OwnLoss(), own),
        "data set by DataLoader": (lazy, Classification(), "sgd"),
    }
    arrays, plain = read_arrays(model), Plain(RunConfig())

    def one(data: Split | LazySplit, problem: Problem, optimiser: str) -> Callable[[], object]:
        settings = TrainSettings(1, 0, 32, 0.05, 0.9, 0.0, optimiser)
        return lambda: train_one(model, Job(arrays, data, 0), settings, plain, problem)

    found = dict.fromkeys(ways, float("inf"))
    for _ in range(trials):
        for name, way in ways.items():
            found[name] = min(found[name], _cpu_seconds(one(*way)))
    return found


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def frozen_bytes() -> tuple[int, int]:
    """Return the bytes of an update with a frozen backbone: all of it, and what is trained.

    >>> whole, trained = frozen_bytes()
    >>> whole > 300 * trained
    True
    """
    backbone = nn.Sequential(nn.Linear(784, 2500), nn.ReLU(), nn.Linear(2500, 832), nn.ReLU())
    model = nn.Sequential(backbone.requires_grad_(False), nn.Linear(832, 16))
    trained = read_arrays(model)
    whole = {**frozen_arrays(model), **trained}
    return record_bytes(to_record(whole)), record_bytes(to_record(trained))


def main() -> None:
    """Print the table."""
    found = measure()
    for name, seconds in found.items():
        print(f"{name:24} {seconds:7.3f} s  {seconds / found['built in']:5.2f} of the built-in way")
    whole, trained = frozen_bytes()
    print(
        f"a frozen backbone: {whole:,} bytes with it, {trained:,} without: {whole / trained:.0f}x"
    )


if __name__ == "__main__":
    main()
