"""What attackers cost, with and without a defence."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from ..attacks import UPDATES
from .study import Study

Settings = dict[str, Scalar]

COMMON: Settings = {
    **{"study.runner": "attacked", "num-clients": 20, "num-server-rounds": 20},
    **{"partition": "dirichlet", "split.alpha": 1.0, "local-epochs": 2, "learning-rate": 0.1},
    "evaluate-every": 20,
}
DEFENCES: dict[str, Settings] = {
    "no bounds": {
        **{"quarantine.norm-factor": 1000.0, "quarantine.count-factor": 1000.0},
        "quarantine.weight-factor": 0.0,
    },
    "mean": {},
    "tight bounds": {"quarantine.norm-factor": 3.0, "quarantine.count-factor": 5.0},
    "median": {"aggregator": "median"},
    "trimmed mean": {"aggregator": "trimmed-mean", "aggregation.trim": 0.25},
    "multi-krum": {
        **{"aggregator": "multi-krum", "aggregation.malicious": 4, "aggregation.keep": 12},
    },
    "clipped mean": {"aggregator": "clipped-mean"},
    "fltrust": {"aggregator": "fltrust"},
}
SPOILT = tuple(attack for attack in UPDATES if attack != "noise as large as the update")
# What each rule reads, and so what attackers lie about
RULES: dict[str, tuple[str, Settings]] = {
    "random": ("similarity", {"client-selector": "random"}),
    "aoi": ("similarity", {"client-selector": "aoi"}),
    "cosage": ("similarity", {"client-selector": "cosage"}),
    "dissimilarity": ("similarity", {"client-selector": "dissimilarity"}),
    "dissimilarity, at most twice the average": (
        "similarity",
        {"client-selector": "dissimilarity", "clients.at-most": 2.0},
    ),
    "local-loss": ("loss", {"client-selector": "local-loss"}),
    "oort": ("loss", {"client-selector": "oort"}),
}
PLANTED: Settings = {
    **{**COMMON, "partition": "iid", "local-epochs": 5, "client-selector": "all"},
    **{"groups.kind": "label-permutation", "groups.count": 4},
    **{"fraction-evaluate": 1.0, "data.client-test-share": 0.2},
}
ALIKE: Settings = {**PLANTED, "groups.kind": "none"}
WAYS: dict[str, Settings] = {
    "one model": ALIKE,
    "median": {**ALIKE, "aggregator": "median"},
    "split-test": {
        **ALIKE,
        "cohorts": "split-test",
        "split-test.first-split": 4,
        "split-test.min-participants": 3,
    },
    "ifca, two models": {**ALIKE, "cohorts": "ifca", "cohort.number": 2},
    "fl-hc": {**ALIKE, "cohorts": "fl-hc", "cohort.joint-rounds": 4},
}
EAGER: Settings = {
    **{**PLANTED, "cohorts": "auxo", "auxo.first-clustering": 2},
    **{"auxo.first-split": 4, "auxo.min-participants": 3},
}
AFFINITY: dict[str, Settings] = {
    "auxo, nobody barred": {**EAGER, "auxo.lies-allowed": 1000},
    "auxo, barred after 3 lies": {**EAGER, "auxo.lies-allowed": 3},
}


def updates() -> Study:
    """Return attacks on what is aggregated, by defences."""
    cells = [
        Cell(f"{attack}: {name}", {**COMMON, "client-selector": "all", "attack": attack, **defence})
        for attack in SPOILT
        for name, defence in DEFENCES.items()
    ]
    setting = (
        "Digits, softmax, 20 clients, every fifth hostile, Dirichlet 1.0, all in every round,"
        " 20 rounds of 2 local epochs. Accuracy of the global model on clean test data. All"
        " columns but two have the default bounds. Tight bounds: the mean with"
        " `quarantine.norm-factor=3 quarantine.count-factor=5`; no bounds: the mean with 1000 for"
        " both and `quarantine.weight-factor=0`."
    )
    decided = {
        **{"none": ("mean", "no bounds", "median"), "sign flipped": ("mean", "median")},
        "flipped and boosted ten times": ("mean", "no bounds"),
        "flipped and boosted four times": ("mean", "median"),
        "flipped, and claims 100 times the data": ("mean", "tight bounds"),
        "replays its first reply": ("mean", "median"),
    }
    primary = tuple(f"{attack}: {name}" for attack, names in decided.items() for name in names)
    return Study("security-updates", "security", setting, tuple(cells), primary=primary)


def summaries() -> Study:
    """Return what lies about summaries bring under each rule of choice."""
    common: Settings = {**COMMON, "clients-per-round": 5, "num-server-rounds": 40}
    common |= {"evaluate-every": 40}
    cells = [
        Cell(f"{rule}, {what}", {**common, **own, "attack": attack})
        for rule, (wants, own) in RULES.items()
        for what, attack in {
            "no attack": "none",
            "they flip": "sign flipped",
            "they flip and lie": f"lies about {wants}",
        }.items()
    ]
    setting = (
        "As above, with five of the 20 clients in each of 40 rounds. Attackers flip their updates;"
        " liars also claim what makes them chosen: a similarity of -1, or a loss of a"
        " million. A fair share of turns would be 20 %."
    )
    primary = (
        *(
            f"{rule}, {what}"
            for rule in ("cosage", "dissimilarity", "local-loss")
            for what in ("they flip", "they flip and lie")
        ),
        *("aoi, they flip", "random, they flip"),
    )
    return Study("security-summaries", "security", setting, tuple(cells), primary=primary)


def cohorts() -> Study:
    """Return poisoned labels and faked affinity where clients gather in cohorts."""
    pairs = [(WAYS, "labels turned round"), (AFFINITY, "fakes affinity")]
    cells = [
        Cell(f"{way}, {'attacked' if attack != 'none' else 'no attack'}", {**own, "attack": attack})
        for ways, attacked in pairs
        for way, own in ways.items()
        for attack in ("none", attacked)
    ]
    setting = (
        "Digits, softmax, 20 clients, every fifth hostile, iid, all in every round, 20 rounds of 5"
        " local epochs. Attackers reverse the order of their labels; under `auxo` clients are in"
        " four planted groups, and attackers claim to fit best where they fit worst. Mean accuracy"
        " of the honest clients on their own test data, each with the model that it would use."
    )
    ways = ("median", "one model", *AFFINITY)
    primary = tuple(f"{way}, attacked" for way in ways)
    return Study("security-cohorts", "security", setting, tuple(cells), primary=primary)


def studies() -> list[Study]:
    """Return the three tables."""
    return [updates(), summaries(), cohorts()]
