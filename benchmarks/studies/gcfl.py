"""GCFL: whether a coreset that matches the server's class gradients keeps wrong labels out."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from ..gcfl import EXPERIMENTS, PAPER
from .study import Study

Settings = dict[str, Scalar]

METHODS: dict[str, Settings] = {
    "fedavg": {},
    "random": {"data-selector": "random", "coreset.every": 1},
    "random, every 10": {"data-selector": "random"},
    "gce": {"objective": "gce"},
    "trusted": {"data-selector": "trusted"},
    "gcfl": {"data-selector": "gcfl"},
    "nearest": {"data-selector": "nearest"},
    "skyline": {"data-selector": "skyline"},
}
WRONG: Settings = {"noise": "closed-set", "corruption.rate": 0.4}
LEVELS = (0, 20, 60)  # per cent of wrong labels; 40 is what the other studies have
NOISES: dict[str, Settings] = {
    **{
        f"{level} % wrong labels": {"noise": "closed-set", "corruption.rate": level / 100}
        for level in LEVELS
    },
    "40 % foreign classes": {"noise": "open-set", "corruption.rate": 0.4},
    "40 % blurred inputs": {"noise": "attribute", "corruption.rate": 0.4},
}
SPREADS: dict[str, Settings] = {
    **{f"deviation {s}": {"study.spread": s} for s in (2, 4, 8)},
    "deviations 1 to 8": {"task": "blobs"},
}
SHORT = ("fedavg", "random", "trusted", "gcfl")
MIDDLE = (*SHORT, "random, every 10", "gce")
# The paper's other baselines, in the setting where one run takes seconds
OTHERS: dict[str, Settings] = {
    **{name: {"objective": key} for name, key in (("fedprox", "prox"), ("scaffold", "scaffold"))},
    "moon": {"objective": "moon"},
    **{rule: {"data-selector": rule} for rule in ("crust", "facility-location", "gradmatch")},
    "forager": {"strategy": "forager", "serving": "model"},  # what a user would pick
}
COMMON: Settings = {**PAPER, "study.runner": "coresets"}
PAPER_STEPS = 16  # per round, in batches of 32 of a tenth of 5,000 images


def long() -> Study:
    """Return training until networks know wrong labels by heart."""
    lengths = {"digits": ("long", 250, 10), "blobs": ("long-blobs", 100, 5)}
    cells = [
        Cell(
            f"{data}: {method}",
            {
                **{**COMMON, **EXPERIMENTS[experiment], **WRONG, **changes},
                "num-server-rounds": rounds,
                "evaluate-every": every,
            },
        )
        for data, (experiment, rounds, every) in lengths.items()
        for method, changes in {**METHODS, **(OTHERS if data == "digits" else {})}.items()
    ]
    setting = (
        "40 % wrong labels, 10 clients, all in every round, batches of 16, momentum 0.9, a tenth of"
        " the samples, chosen every 10 rounds. Digits: MLP of 256, Dirichlet 0.4, 2 local epochs,"
        " 250 rounds, cosine schedule. Blobs: MLP of 512, iid, 5 local epochs, 100 rounds, constant"
        " rate."
    )
    primary = tuple(
        f"digits: {method}"
        for method in (
            *("gcfl", "trusted", "fedavg", "gce", "random", "random, every 10"),
            *("fedprox", "crust"),
        )
    )
    return Study("gcfl-long", "gcfl", setting, tuple(cells), primary=primary)


def noises() -> Study:
    """Return other kinds and other levels of noise."""
    common: Settings = {
        **{**COMMON, **EXPERIMENTS["long"]},
        **{"num-server-rounds": 100, "evaluate-every": 5},
    }
    cells = [
        Cell(f"{noise}: {method}", {**common, **wrong, **METHODS[method]})
        for noise, wrong in NOISES.items()
        for method in MIDDLE
    ]
    setting = (
        "Digits, MLP of 256, 10 clients, Dirichlet 0.4, all in every round, 100 rounds of 2 local"
        " epochs, batches of 16, momentum 0.9, cosine schedule, a tenth of the samples."
    )
    primary = tuple(
        f"{noise}: {method}"
        for noise in ("0 % wrong labels", "40 % foreign classes")
        for method in ("gcfl", "fedavg")
    )
    return Study("gcfl-noises", "gcfl", setting, tuple(cells), primary=primary)


def blobs() -> Study:
    """Return the paper's motivating experiment: logistic regression on blobs (figure 2)."""
    common: Settings = {
        **{**COMMON, **EXPERIMENTS["motivating"], **WRONG},
        **{"num-server-rounds": 200, "evaluate-every": 10},
    }
    cells = [
        Cell(f"{spread}: {method}", {**common, **own, **METHODS[method]})
        for spread, own in SPREADS.items()
        for method in (*SHORT, "random, every 10", "skyline")
    ]
    setting = (
        "Ten blobs in 10 dimensions, 10,000 points, all of one standard deviation (2, 4 or 8) or"
        " of ten from 1 to 8; logistic regression, 10 clients, iid, all in every round, 200 rounds"
        " of one local epoch, batches of 32, learning rate 0.01 with a cosine schedule, 40 % wrong"
        " labels, a tenth of the samples."
    )
    primary = ("deviation 4: gcfl", "deviation 4: fedavg")
    return Study("gcfl-blobs", "gcfl", setting, tuple(cells), primary=primary)


def images() -> Study:
    """Return the paper's main experiment: its network on CIFAR-10 (table 1).

    A tenth of a client's 1,000 images are four steps per epoch, but 16 of the paper's 5,000. So
    coresets are trained on for one epoch, and for as many steps per round as in the paper.
    """
    common: Settings = {**COMMON, "study.data": "cifar", "model": "cnn", **WRONG}
    common |= {"num-server-rounds": 250, "evaluate-every": 10}
    more: Settings = {**common, "local-steps": PAPER_STEPS}
    cells = [
        *(Cell(f"CIFAR-10: {method}", {**common, **METHODS[method]}) for method in SHORT),
        *(
            Cell(f"CIFAR-10, {PAPER_STEPS} steps: {method}", {**more, **METHODS[method]})
            for method in ("trusted", "gcfl")
        ),
    ]
    setting = (
        "10,000 images of CIFAR-10, the paper's CNN of 3.4 M parameters, 10 clients, Dirichlet 0.4,"
        " all in every round, 250 rounds of one local epoch, which is about 4 steps with a coreset,"
        f" or of {PAPER_STEPS} steps as in the paper, batches of 32, learning rate 0.01 with a"
        " cosine schedule, momentum 0.9, 40 % wrong labels, a tenth of the samples."
    )
    # All samples for 250 rounds take the better part of an hour on one core.
    return Study("gcfl-cifar", "gcfl", setting, tuple(cells), range(1))


def studies() -> list[Study]:
    """Return the studies of this paper."""
    return [long(), blobs(), noises(), images()]
