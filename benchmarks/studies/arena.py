"""The arena: every rule of who trains, as ``forager arena`` runs them."""

from ...tools.experiments.arena import RUNNER, cells, rules
from .study import Study

SETTING = (
    "FedAvg with 50 clients, 5 per round, 40 rounds of 2 local epochs, learning rate 0.05, on"
    " devices whose speed and connection differ (log-normal, spread 1)."
)


def studies() -> list[Study]:
    """Return the one study."""
    return [Study("arena", "arena", SETTING, tuple(cells(rules())), range(3), RUNNER)]
