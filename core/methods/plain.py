"""The plain choices: the defaults of each axis."""

from .base import Method
from .selector import Selector


def _rule(name: str, about: str, core: str, default: bool = False) -> Selector:
    return Selector(
        name=name, about=about, default=default, core=f"selectors.client_selectors.{core}"
    )


METHODS = (
    _rule("random", "clients drawn uniformly", "plain:Uniform", default=True),
    _rule("all", "all clients, every round", "plain:Everyone"),
    _rule("round-robin", "all clients in turn", "plain:RoundRobin"),
    _rule("aoi", "clients that have waited longest (age of information)", "age:OldestFirst"),
    _rule(
        "turns", "clients that have waited longest, in varying combinations", "age:ShuffledTurns"
    ),
    Method(axis="data-selector", name="full", about="all of a client's data", default=True),
    Method(
        axis="cohorts",
        name="none",
        about="one model for all",
        default=True,
        offers=("one model",),
        requires={"similarity": ("none",)},
    ),
    Method(axis="similarity", name="none", about="clients are not compared", default=True),
    Method(
        axis="objective",
        name="sgd",
        about="the plain loss",
        default=True,
        core="core.learning.objectives.plain:Plain",
    ),
    Method(axis="uplink", name="dense", about="clients send whole models", default=True),
    Method(
        axis="weighting",
        name="examples",
        about="clients count by their number of samples",
        default=True,
    ),
    Method(
        axis="serving",
        name="model",
        about="the received model, tuned for personalise.epochs",
        default=True,
    ),
    Method(axis="weighting", name="uniform", about="all clients count the same"),
)
