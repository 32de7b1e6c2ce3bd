"""Whether a comparison that stops strategies early says what one to the end says."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .study import Study

PRESETS = (
    *("fedavg", "fedprox", "fedyogi", "scaffold", "moon"),
    *("cosage-feedback", "trusted", "ode-balanced", "split-test", "ios-centred"),
)
ROUNDS, EVERY = 100, 11
COMMON: dict[str, Scalar] = {
    **{"task": "digits", "model": "softmax", "num-clients": 10, "clients-per-round": 5},
    **{"partition": "dirichlet", "split.alpha": 0.3},
    **{"num-server-rounds": ROUNDS, "evaluate-every": EVERY},
}


def studies() -> list[Study]:
    """Return the one study."""
    cells = tuple(Cell(preset, {**COMMON, "strategy": preset}) for preset in PRESETS)
    setting = (
        "Ten presets to the end: digits, softmax, 10 clients, Dirichlet 0.3, 5 per round, 100"
        " rounds. Accuracy on the server's test data."
    )
    return [Study("compare", "compare", setting, cells)]
