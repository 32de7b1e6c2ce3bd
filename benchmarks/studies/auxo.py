"""Auxo: whether groups are found, and nobody is worse off where there are none."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .study import Study

Settings = dict[str, Scalar]

COMMON: Settings = {
    "study.runner": "cohorts",
    "data.client-test-share": 0.2,
    "fraction-evaluate": 1.0,
    "partition": "iid",
}
METHODS: dict[str, Settings] = {
    "fedavg": {},
    "fedyogi": {"aggregator": "fedyogi"},
    "split-test": {"cohorts": "split-test"},
    "auxo": {"strategy": "auxo"},
    "flexcfl": {"cohorts": "flexcfl"},
    "ifca": {"cohorts": "ifca"},
    "cfl": {"cohorts": "cfl", "client-selector": "all"},
}
# What a user would pick
TUNED: Settings = {"strategy": "fedavg", "personalise.epochs": 2}
PICKED: dict[str, Settings] = {
    "fedavg, tuned": TUNED,
    "turns, fedyogi, tuned": {**TUNED, "client-selector": "aoi", "aggregator": "fedyogi"},
    "forager": {"strategy": "forager"},
}
# Cohorts that do not wait for each other: the same number of updates
BUFFERED: Settings = {
    **{"cohorts": "split-test", "aggregation.buffer": 5},
    **{"num-server-rounds": 80, "evaluate-every": 4},
}
GROUPS: dict[str, Settings] = {
    **{
        f"{kind}, {count} groups": {"groups.kind": key, "groups.count": count}
        for kind, key in (("turned images", "rotation"), ("permuted labels", "label-permutation"))
        for count in (2, 4)
    },
    "no groups": {"partition": "dirichlet", "split.alpha": 0.3},
}
CORRUPTED = (0.05, 0.1, 0.15)
LOST = (0.0, 0.05, 0.1, 0.2)  # figure 14c
NOISE = (0.03, 0.1, 0.6)  # per clip; the last for epsilon 8 in the paper, which has more clients
SPLITS_IN = (2, 4, 10, 20, 30)  # figure 13b: rounds before which no cohort is split
NUMBERS = (2, 4, 8)  # figure 13c
TWO = ("turned images, 2 groups", "permuted labels, 2 groups")
# The paper's thresholds are for hundreds of participants.
EAGER: Settings = {
    **{"auxo.first-clustering": 2, "auxo.first-split": 4},
    "auxo.min-participants": 3,
}
# An accuracy that one model reaches in each setting, with whatever aggregator
TARGETS = {
    "turned images, 2 groups": 0.70,
    "turned images, 4 groups": 0.50,
    "permuted labels, 2 groups": 0.35,
}


def _told(method: str, groups: Settings) -> Settings:
    """Return the number of groups for the methods that have to be given it."""
    if method in ("flexcfl", "ifca"):
        return {"cohort.number": groups.get("groups.count", 2)}
    return {}


def planted() -> Study:
    """Return groups that are known, so that what is found can be judged."""
    common: Settings = {
        **COMMON,
        **{"num-clients": 20, "clients-per-round": 10},
        **{"num-server-rounds": 40, "evaluate-every": 4},
    }
    cells = [
        Cell(f"{name}: {method}", {**common, **groups, **changes, **_told(method, groups)})
        for name, groups in GROUPS.items()
        for method, changes in {**METHODS, **PICKED}.items()
    ]
    setting = (
        "Digits, 20 clients, 10 per round (all for CFL), softmax, 40 rounds. FlexCFL and IFCA are"
        " given the number of groups. Accuracy on the clients' own held-out fifth."
    )
    primary = (
        *(
            f"{TWO[0]}: {method}"
            for method in (
                *("fedavg", "fedyogi", "split-test", "auxo", "flexcfl"),
                *("fedavg, tuned", "forager"),
            )
        ),
        *("no groups: split-test", "no groups: fedavg"),
    )
    return Study("auxo-planted", "auxo", setting, tuple(cells), primary=primary)


def speed() -> Study:
    """Return time to accuracy: planted groups on devices of different speed (table 3)."""
    common: Settings = {
        **{**COMMON, "devices.slow": True, "num-clients": 20, "clients-per-round": 10},
        **{"num-server-rounds": 40, "evaluate-every": 2},
    }
    cells = [
        Cell(
            f"{name}: {method}",
            {**common, **GROUPS[name], **METHODS[method], **_told(method, GROUPS[name])},
        )
        for name in TARGETS
        for method in ("fedavg", "fedyogi", "flexcfl", "split-test", "auxo")
    ]
    cells += [
        Cell(f"{name}: split-test, buffer of 5", {**common, **GROUPS[name], **BUFFERED})
        for name in TARGETS
    ]
    setting = (
        "Planted groups as above, on devices whose speed and connection differ (log-normal, spread"
        " 1): a round lasts as long as its slowest client, on a simulated clock."
    )
    primary = tuple(cell.name for cell in cells if cell.name.startswith(TWO[0]))
    return Study("auxo-time", "auxo", setting, tuple(cells), primary=primary)


def users() -> Study:
    """Return data by user, the longest that the data allow."""
    data: dict[str, Settings] = {
        "FEMNIST": {"study.data": "femnist", "num-clients": 105, "learning-rate": 0.05},
        "UCI-HAR": {"study.data": "har", "num-clients": 30, "learning-rate": 0.02},
        "WISDM": {"study.data": "wisdm", "num-clients": 51, "learning-rate": 0.02},
    }
    common: Settings = {
        **{**COMMON, "partition": "natural", "model": "mlp", "net.hidden": 64},
        **{"clients-per-round": 15, "local-epochs": 2, "batch-size": 20},
        **{"num-server-rounds": 100, "evaluate-every": 5, "devices.slow": True},
    }
    cells = [
        Cell(f"{name}: {method}", {**common, **own, **METHODS[method]})
        for name, own in data.items()
        for method in ("fedavg", "fedyogi", "split-test", "auxo")
    ]
    setting = (
        "FEMNIST (105 writers), UCI-HAR (30 users) and WISDM (51 users), MLP of 64, 15 clients per"
        " round, 2 local epochs, 100 rounds, simulated device speeds."
    )
    primary = ("FEMNIST: auxo", "FEMNIST: fedyogi")
    return Study("auxo-users", "auxo", setting, tuple(cells), primary=primary)


def text() -> Study:
    """Return next-character prediction, the paper's case without a gain."""
    common: Settings = {
        **{**COMMON, "task": "poems", "model": "auto"},
        **{"num-clients": 10, "clients-per-round": 5, "num-server-rounds": 20},
        **{"evaluate-every": 5},
    }
    cells = [Cell(method, {**common, **METHODS[method]}) for method in ("fedavg", "split-test")]
    setting = "Poems, next character, a GRU, 10 clients, 5 per round, 20 rounds."
    return Study("auxo-text", "auxo", setting, tuple(cells), primary=("fedavg", "split-test"))


def corrupted() -> Study:
    """Return clients whose labels are random, among planted groups."""
    common: Settings = {
        **{**COMMON, **GROUPS["permuted labels, 2 groups"]},
        **{"num-clients": 20, "clients-per-round": 10},
        **{"num-server-rounds": 40, "evaluate-every": 4},
    }
    cells = [
        Cell(f"{share:.0%} corrupted: {method}", {**common, **METHODS[method], "corrupted": share})
        for share in CORRUPTED
        for method in ("fedavg", "split-test")
    ]
    setting = "Permuted labels in 2 groups as above; some clients have random labels."
    primary = ("5% corrupted: fedavg", "5% corrupted: split-test")
    return Study("auxo-corrupted", "auxo", setting, tuple(cells), primary=primary)


def forgetful() -> Study:
    """Return clients that lose their affinity records, among planted groups (figure 14c)."""
    common: Settings = {
        **{**COMMON, "num-clients": 20, "clients-per-round": 10},
        **{"num-server-rounds": 40, "evaluate-every": 4},
    }
    eager: Settings = {**METHODS["auxo"], **EAGER}
    cells = []
    for name in TWO:
        cells.append(Cell(f"{name}: fedyogi", {**common, **GROUPS[name], **METHODS["fedyogi"]}))
        cells += [
            Cell(
                f"{name}: {share:.0%} lost",
                {**common, **GROUPS[name], **eager, "records-lost": share},
            )
            for share in LOST
        ]
        cells += [
            Cell(
                f"{name}: {share:.0%} unstable",
                {**common, **GROUPS[name], **eager, "unstable": share},
            )
            for share in LOST[1:]
        ]
    setting = (
        "Planted groups as above, `auxo` with thresholds low enough for a run of this size"
        " (clusters from round 2, splits from round 4, 3 participants per part). Before each"
        " training a client loses its affinity records with this probability; unstable: this share"
        " of the clients never has any."
    )
    primary = tuple(f"{TWO[0]}: {name}" for name in ("fedyogi", "5% lost"))
    return Study("auxo-lost", "auxo", setting, tuple(cells), primary=primary)


def sensitivity() -> Study:
    """Return noise on updates, the time of the split, and how many cohorts there are."""
    common: Settings = {
        **{**COMMON, "num-clients": 20, "clients-per-round": 10},
        **{"num-server-rounds": 40, "evaluate-every": 4},
    }
    methods = {"fedyogi": METHODS["fedyogi"], "auxo": {**METHODS["auxo"], **EAGER}}
    methods |= {name: METHODS[name] for name in ("fedavg", "split-test")}
    cells = []
    for name in TWO:
        keys: Settings = {**common, **GROUPS[name]}
        cells += [
            Cell(
                f"{name}, noise {noise}: {method}",
                {**keys, **own, "privacy": "local-dp", "dp.noise-multiplier": noise},
            )
            for noise in NOISE
            for method, own in methods.items()
        ]
        cells += [
            Cell(
                f"{name}: split in round {first}",
                {**keys, **methods["auxo"], "auxo.first-split": first},
            )
            for first in SPLITS_IN
        ]
    cells += [
        Cell(
            f"{name}: {count} cohorts",
            {**common, **GROUPS[name], **METHODS["flexcfl"], "cohort.number": count},
        )
        for name in (TWO[0], TWO[0].replace("2", "4"))
        for count in NUMBERS
    ]
    setting = (
        "Planted groups as above, `auxo` with low thresholds. Noise: `privacy='local-dp'`, standard"
        " deviation per clip. Splits: no cohort is split before this round (`auxo.first-split`)."
        " Cohorts: FlexCFL with this number of them."
    )
    primary = (
        *(f"{TWO[0]}, noise {NOISE[0]}: {method}" for method in methods),
        *(f"{TWO[0]}: split in round {first}" for first in (2, 10)),
        *(f"{TWO[0].replace('2', '4')}: {count} cohorts" for count in (4, 8)),
    )
    return Study("auxo-sensitivity", "auxo", setting, tuple(cells), primary=primary)


def studies() -> list[Study]:
    """Return the studies of this paper."""
    return [planted(), speed(), users(), corrupted(), forgetful(), sensitivity(), text()]
