"""ODE: whether the samples that it keeps are worth more than a fair draw."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from ..ode import METHODS, PAPER, RATES, TASKS
from .study import Study

Settings = dict[str, Scalar]

COMMON: Settings = {**PAPER, "study.runner": "streams"}
# RS and FIFO, HL and GN, FB and SLD, ODE-Est and ODE-Exact, FD of table 2, and ours
BY_WORTH = ("high-loss", "gradient-norm", "fedbalancer", "sld")
RULES = (
    *("reservoir", "fifo", *BY_WORTH, "ode-balanced"),
    *("ode", "ode, exact gradient", "unlimited"),
)
DATA: dict[str, tuple[str, Settings, int]] = {
    "activities (WISDM)": ("har", {"study.data": "wisdm", "num-clients": 51}, 300),
    "traffic": ("traffic", {"study.data": "traffic"}, 300),
    "synthetic": ("synthetic", {}, 200),
    "Fashion-MNIST": ("fashion", {"study.data": "fashion"}, 500),
}
SHORT = ("reservoir", "fifo", "ode-balanced", "ode")
IMAGES = "Fashion-MNIST"
LONG = {IMAGES: ("reservoir", "ode-balanced", "ode")}
PLACES = (2, 5, 10, 20)
VALUED = ("activities (WISDM)", "traffic", IMAGES)
PARTS: dict[str, Settings] = {
    "last layer": {},
    "all layers": {"ode.layers": 0},
    "exact gradient": {"ode.estimator": "exact"},
    # Appendix C.5
    "without valuation": {"ode.estimator": "none"},
    "without estimators": {"ode.estimator": "stored"},
    "without coordination": {"ode.coordinate": False},
}
COSTS: dict[str, Settings] = {
    **{rule: METHODS[rule] for rule in ("reservoir", "high-loss", "gradient-norm", "ode-balanced")},
    "ode-balanced, all layers": {**METHODS["ode-balanced"], "ode.layers": 0},
}


def _common(name: str) -> Settings:
    kind, own, rounds = DATA[name]
    task: Settings = {**COMMON, **TASKS[kind], **own, "learning-rate": RATES[kind]}
    if task["partition"] == "natural":
        task["fraction-evaluate"] = 1.0
    return {**task, "num-server-rounds": rounds, "evaluate-every": 25}


def rules() -> Study:
    """Return the rules of the paper's table 2 on four kinds of data."""
    cells = [
        Cell(f"{name}: {rule}", {**_common(name), **METHODS[rule]})
        for name in DATA
        if name != IMAGES
        for rule in LONG.get(name, RULES)  # of the long runs only what the verdict needs
    ]
    setting = (
        "5 local epochs of full batches, a five-hundredth of a client's data per round. WISDM: 51"
        " users, 5 places, 300 rounds. Traffic with at most 500 samples per class: 30 clients, 10"
        " places, 300 rounds. Synthetic: 200 users, 10 places, 200 rounds."
    )
    primary = (
        *(f"synthetic: {rule}" for rule in ("reservoir", "ode-balanced", "ode")),
        *(f"activities (WISDM): {rule}" for rule in ("reservoir", "high-loss", "ode", "sld")),
    )
    return Study("ode-rules", "ode", setting, tuple(cells), primary=primary)


def images() -> Study:
    """Return the paper's image task over 500 rounds."""
    cells = [
        Cell(f"{IMAGES}: {rule}", {**_common(IMAGES), **METHODS[rule]}) for rule in LONG[IMAGES]
    ]
    setting = (
        "6,000 images of Fashion-MNIST, LeNet, 50 clients with shards, 5 places, a five-hundredth"
        " of a client's data per round, 5 local epochs of full batches, 500 rounds."
    )
    return Study("ode-images", "ode", setting, tuple(cells))


def places() -> Study:
    """Return how much storage a device has (section 4.3)."""
    name = "activities (WISDM)"
    cells = [
        Cell(
            f"{count} places: {rule}", {**_common(name), **METHODS[rule], "stream.capacity": count}
        )
        for count in PLACES
        for rule in ("reservoir", "ode-balanced", "ode")
    ]
    setting = "WISDM as above, 2 to 20 places per client."
    primary = tuple(f"5 places: {rule}" for rule in ("reservoir", "ode-balanced", "ode"))
    return Study("ode-places", "ode", setting, tuple(cells), primary=primary)


def parts() -> Study:
    """Return ODE with more layers and better estimates: the paper's figure 3, and ODE-Exact."""
    name = "activities (WISDM)"
    cells = [
        Cell(part, {**_common(name), "num-server-rounds": 100, **METHODS[rule], **changes})
        for rule, own in (("ode", PARTS), ("reservoir", {"reservoir": {}}))
        for part, changes in own.items()
    ]
    setting = (
        "WISDM as above, `ode`, 100 rounds, with the gradients of the last layer (the"
        " simplified version, our default), of all layers, and with the exact global gradient in"
        " place of its estimate; and without one of its three parts: samples kept at random,"
        " the gradient over the participants' stores in place of an estimate, no plan of the"
        " labels to store."
    )
    primary = tuple(part for part in PARTS if part != "without coordination")
    return Study("ode-parts", "ode", setting, tuple(cells), primary=primary)


def values() -> Study:
    """Return how well one layer and an early look tell a sample's value: table 3 and figure 7."""
    cells = [
        Cell(
            name,
            {
                **{**_common(name), **METHODS["reservoir"], "study.runner": "values"},
                **{"num-server-rounds": 30, "evaluate-every": 30},
            },
        )
        for name in VALUED
    ]
    setting = (
        "Values of 500 training samples (eq. 6, exact global gradient) at the first model and after"
        " 30 rounds with a reservoir; data and networks as above. Times are milliseconds of CPU"
        " per sample, one sample at a time, on the machine that ran this."
    )
    return Study("ode-values", "ode", setting, tuple(cells), primary=VALUED[:1])


def costs() -> Study:
    """Return what each rule takes of a device: table 3."""
    cells = [
        Cell(f"{name}: {rule}", {**_common(name), **changes, "study.runner": "devices"})
        for name in VALUED
        for rule, changes in COSTS.items()
    ]
    setting = (
        "400 samples, offered one at a time to a device with an untrained network; data and"
        " networks as above. Held: the model, the estimate of the global gradient, the device's"
        " own mean gradient and the rule's values and places, without the stored samples."
        " Looking: the peak of further tensors during an offer. Milliseconds are of CPU"
        " on the machine that ran this. `high-loss` and `gradient-norm` use the last layer,"
        " as `ode-balanced` does."
    )
    return Study("ode-costs", "ode", setting, tuple(cells))


def studies() -> list[Study]:
    """Return the studies of this paper."""
    return [rules(), images(), places(), parts(), values(), costs()]
