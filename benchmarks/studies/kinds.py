"""Other kinds of problems: what each family of methods brings where there are no classes."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .real import AIR
from .study import Study

Settings = dict[str, Scalar]

# By family: what the others are compared with comes first
FAMILIES: dict[str, dict[str, Settings]] = {
    "who trains": {
        rule: {"client-selector": rule}
        for rule in ("random", "aoi", "cosage", "oort", "power-of-choice")
    },
    "a tenth of the samples": {
        **{"random samples": {"data-selector": "random"}},
        **{rule: {"data-selector": rule} for rule in ("gradmatch", "crust")},
        **{"all samples": {}},
    },
    "ten places for a stream": {
        rule: {"data-selector": rule}
        for rule in ("reservoir", "fifo", "high-loss", "sld", "ode", "ode-balanced")
    },
    "own models": {
        "one model": {},
        "one model, tuned": {"personalise.epochs": 2},
        "fedyogi": {"strategy": "fedyogi"},
        **{preset: {"strategy": preset} for preset in ("auxo", "split-test", "ios", "ios-centred")},
        "forager": {"strategy": "forager"},
    },
}
_COMMON: Settings = {"coreset.budget": 0.1, "ios.samples": 128}
KINDS: dict[str, Settings] = {
    "regression": {**AIR, **_COMMON, "num-server-rounds": 20},
    "next token": {
        **{"task": "poems", "partition": "natural", "num-clients": 10, "clients-per-round": 5},
        **{"num-server-rounds": 20, "evaluate-every": 20, "fraction-evaluate": 1.0},
        **{"learning-rate": 1.0, **_COMMON},
    },
}


def studies() -> list[Study]:
    """Return the one study."""
    cells = [
        Cell(f"{kind}, {family}: {name}", {**common, **own})
        for kind, common in KINDS.items()
        for family, rules in FAMILIES.items()
        for name, own in rules.items()
    ]
    setting = (
        "Regression: Beijing's air as on [its page](real.md), 20 rounds. Next token: poems of ten"
        " poets by character, a GRU, 5 poets per round, 20 rounds of one epoch, learning rate 1."
        " A tenth of the samples, 10 places for streams of a twentieth of a client's data per"
        " round. Mean over clients, each on its own test data."
    )
    return [Study("kinds", "kinds", setting, tuple(cells))]
