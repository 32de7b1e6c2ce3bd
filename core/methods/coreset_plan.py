"""What each way of choosing a coreset looks at: server and client must agree on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

# A rule of matching by its name in the config, and by its name in selectors.data_selectors.coreset
_MATCHING = {"distance": "gcfl", "projection": "gradmatch", "nearest": "nearest"}
# What the data selectors that match a gradient do by themselves: their rule and their target.
# GradMatch is not of federated learning: it matches the gradient of the data it chooses from.
_OWN_WAY = {
    "gcfl": ("distance", "server"),
    "gradmatch": ("projection", "own"),
    "nearest": ("nearest", "server"),
}


@dataclass(frozen=True)
class CoresetPlan:
    """How a client chooses.

    Parameters
    ----------
    rule : str
        As :func:`forager.selectors.data_selectors.coreset.choose_coreset` calls it.
    target : str (default: "none")
        Whose mean gradients samples are compared with: "server", "own" or "none".
    looks_at : str (default: "gradients")
        What samples are compared by: "gradients" of the model, "inputs" or "nothing".
    """

    rule: str
    target: str = "none"
    looks_at: str = "gradients"

    @property
    def guided(self) -> bool:
        """Whether the server must send something."""
        return self.target == "server"

    @property
    def changes(self) -> bool:
        """Whether another choice can come of the same data in a later round."""
        return self.looks_at != "inputs"

    @property
    def redraws(self) -> bool:
        """Whether what is chosen is a pool, from which every round draws."""
        return self.rule == "agreement"


def coreset_plan(config: "RunConfig") -> CoresetPlan | None:
    """Return how coresets are chosen in a run, or None if there are none.

    >>> from forager.core.config.run_config import read_config
    >>> coreset_plan(read_config({"data-selector": "gcfl", "coreset.rule": "projection"}))
    CoresetPlan(rule='gradmatch', target='server', looks_at='gradients')
    """
    name, settings = config.data_selector, config.coreset
    if name in _OWN_WAY:
        rule, target = _OWN_WAY[name]
        rule = rule if settings.rule == "auto" else settings.rule
        target = target if settings.target == "auto" else settings.target
        return CoresetPlan(_MATCHING[rule], target)
    return {
        "random": CoresetPlan("random", looks_at="nothing"),
        "facility-location": CoresetPlan("facility-location", looks_at="inputs"),
        "crust": CoresetPlan("crust"),
        "agreement": CoresetPlan("agreement", target="server"),
    }.get(name)
