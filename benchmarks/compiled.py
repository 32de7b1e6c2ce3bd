"""Does ``torch.compile`` pay? ``python -m forager.benchmarks.compiled``.

A training step (forward, backward, SGD) of two small models, as they are, in the form that the
trainer uses (:mod:`forager.core.learning.fused_model`), and compiled. The three take turns, so that
other load on the machine hits all of them. The compiler finds nothing of earlier runs.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from ..core.learning.fused_model import fused_model
from ..core.tasks.models import build_model
from ..tools.experiments.tables import Table

MODELS = {"small-cnn": (1, 28, 28), "mlp": (64,)}  # and the shape of a sample
BATCH, CLASSES, RATE = 32, 10, 0.05


def _compiled(model: nn.Module) -> nn.Module:
    compiled = torch.compile(model)
    assert isinstance(compiled, nn.Module)
    return compiled


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "as it is": lambda model: model,
    "quick form": fused_model,
    "compiled": _compiled,
}


@dataclass
class Steps:
    """A model that is trained, and the seconds of each of its steps."""

    model: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._optimiser = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def train(self, count: int) -> None:
        """Train for some steps."""
        for _ in range(count):
            started = time.perf_counter()
            self._optimiser.zero_grad()
            functional.cross_entropy(self.model(self.x), self.y).backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            self.seconds.append(time.perf_counter() - started)


def measure(name: str, turns: int, steps: int) -> dict[str, Steps]:
    """Train one model in all ways, some steps per turn; the first step is a turn of its own."""
    shape = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, *shape, generator=generator)
    y = torch.randint(CLASSES, (BATCH,), generator=generator)
    ways = {way: Steps(make(build_model(name, shape, CLASSES)), x, y) for way, make in WAYS.items()}
    for count in (1, *[steps] * turns):
        for each in ways.values():
            each.train(count)
    return ways


def rows(name: str, ways: dict[str, Steps]) -> list[list[str]]:
    """Return a row per way: the first step, a later one, and that as a multiple of the plain one.

    >>> one, two = (Steps(nn.Linear(1, 1), None, None, s) for s in ([1.0, 0.002], [9.0, 0.003]))
    >>> rows("m", {"as it is": one, "compiled": two})[1]
    ['m', 'compiled', '9.00', '3.00', '1.50']
    """
    later = {way: statistics.median(each.seconds[1:]) for way, each in ways.items()}
    plain = later["as it is"]
    return [
        [
            name,
            way,
            f"{each.seconds[0]:.2f}",
            f"{1000 * later[way]:.2f}",
            f"{later[way] / plain:.2f}",
        ]
        for way, each in ways.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25, help="per turn")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # read when the compiler is imported
    table = [["model", "way", "first step (s)", "later step (ms)", "later step / as it is"]]
    for name in MODELS:
        table += rows(name, measure(name, options.turns, options.steps))
    print(Table(table).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
