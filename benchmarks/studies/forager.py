"""The united strategy: against what a user would pick, without its parts, and on wrong labels.

Constants of its parts were chosen on seeds 100 and 101; learning rates are those of "Does it
harm?", chosen for FedAvg on seed 100.
"""

from ...tools.experiments.records import Cell
from .no_harm import CLIENTS, DATA, Settings, setting_of, stream_of
from .study import Study

TUNED: Settings = {"strategy": "fedavg", "personalise.epochs": 2}
ROWS: dict[str, Settings] = {
    "fedavg": {"strategy": "fedavg"},
    "fedavg, tuned": TUNED,
    "turns, fedyogi, tuned": {**TUNED, "client-selector": "aoi", "aggregator": "fedyogi"},
    "forager": {"strategy": "forager"},
    "forager, IOS cohorts": {
        "strategy": "forager",
        "cohorts": "similarity",
        "similarity": "centred-overlap",
    },
}
# What takes the place of each part
WITHOUT: dict[str, Settings] = {
    "turns": {"client-selector": "random"},
    "paced step": {"aggregator": "fedavg"},
    "choice of tuning": {"serving": "model", "personalise.epochs": 2},
    "tuning": {"serving": "model"},
    "cohorts": {"cohorts": "none"},
    "compact updates": {"uplink": "dense", "downlink": "whole"},
}
PARTS_ON = ("digits", "WISDM", "traffic")
LABELS_ON = ("digits", "CIFAR-10 features", "UCI-HAR", "WISDM", "traffic")
_PLAIN: Settings = {"strategy": "fedavg", "client-selector": "aoi", "aggregator": "paced"}
LABEL_ROWS: dict[str, Settings] = {
    "all samples": _PLAIN,
    "gce": {**_PLAIN, "objective": "gce"},
    "confirmed": {**_PLAIN, "data-selector": "confirmed"},
    "skyline": {**_PLAIN, "data-selector": "skyline"},
}
NOISES: dict[str, Settings] = {
    "clean": {},
    **{
        f"{share} % wrong labels": {"noise": "closed-set", "corruption.rate": share / 100}
        for share in (20, 40, 60)
    },
    # Each class is taken for the next one, in the files: no skyline knows which
    "40 % taken for the next class": {"study.pairs": 0.4},
}
# The user says that samples come in a stream, and which of them are kept
_ONE_MODEL: Settings = {"strategy": "forager", "serving": "model"}
STREAM_ROWS: dict[str, Settings] = {
    "reservoir": {"data-selector": "reservoir"},
    "fifo": {"data-selector": "fifo"},
    "titan": {"data-selector": "titan"},
    "forager, reservoir": {**_ONE_MODEL, "data-selector": "reservoir"},
    "forager, ode-balanced": {**_ONE_MODEL, "data-selector": "ode-balanced"},
}
_ONCE: Settings = {"evaluate-every": 60}


def clients() -> Study:
    """Return the comparison with what a user would pick."""
    cells = [
        Cell(f"{name}: {row}", {**CLIENTS, **setting_of(name), **_ONCE, **chosen})
        for name in DATA
        for row, chosen in ROWS.items()
    ]
    setting = (
        "60 rounds of 2 local epochs, batches of 20, 10 clients per round (20 of FEMNIST's 105), an"
        " MLP of 64 units (softmax on features and words). Data by user where there are users, else"
        " Dirichlet 0.3 over 30 clients. Accuracy after the last round on the clients' own held-out"
        " fifth, as a mean over clients."
    )
    primary = tuple(
        f"{name}: {row}"
        for name in DATA
        for row in ("forager", "fedavg, tuned", "turns, fedyogi, tuned")
    )
    return Study("forager-clients", "forager", setting, tuple(cells), range(10), primary=primary)


def parts() -> Study:
    """Return the strategy without each of its parts."""
    rows: dict[str, Settings] = {"all parts": {}, **WITHOUT}
    cells = [
        Cell(
            f"{name}: {row}",
            {**CLIENTS, **setting_of(name), **_ONCE, "strategy": "forager", **changed},
        )
        for name in PARTS_ON
        for row, changed in rows.items()
    ]
    setting = "As above, with one part replaced by its plain counterpart."
    return Study("forager-parts", "forager", setting, tuple(cells))


def labels() -> Study:
    """Return what becomes of wrong labels."""
    cells = [
        Cell(
            f"{noise}, {name}: {row}",
            {**CLIENTS, **_own(name, wrong), **_ONCE, **wrong, **chosen},
        )
        for noise, wrong in NOISES.items()
        for name in LABELS_ON
        for row, chosen in LABEL_ROWS.items()
        if "noise" in wrong or row != "skyline"
    ]
    setting = (
        "As above, with one model for all, turns and the paced step in all rows. Accuracy after the"
        " last round on the server's test data, whose labels are right."
    )
    return Study("forager-labels", "forager", setting, tuple(cells))


def _own(name: str, wrong: Settings) -> Settings:
    """Return the setting of a data set, from a file where labels are changed in it."""
    own = setting_of(name)
    if "study.pairs" in wrong and own.get("task") == "digits":
        own = {**{k: v for k, v in own.items() if k != "task"}, "study.data": "digits"}
    return own


def streams() -> Study:
    """Return the strategy on streams, against a reservoir."""
    cells = []
    for name in DATA:
        common = {**stream_of(name), "strategy": "fedavg"}
        cells += [
            Cell(f"{name}: {row}", {**common, **chosen}) for row, chosen in STREAM_ROWS.items()
        ]
    setting = (
        "A fifth of the clients per round, 10 places per client, a hundredth of a client's data"
        " arrives per round, 100 rounds of 5 full-batch steps. Accuracy on the server's test data,"
        " mean of the last three evaluations."
    )
    return Study("forager-streams", "forager", setting, tuple(cells))


def studies() -> list[Study]:
    """Return all four."""
    return [clients(), parts(), labels(), streams()]
