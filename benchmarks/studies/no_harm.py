"""Does a preset harm? Every one on eight data sets, against its baseline.

Three families, because three things are replaced. Presets that choose clients, cohorts, objectives
or aggregation replace FedAvg; coresets replace random samples of the same budget, under 40 % wrong
labels and with none; rules for a stream replace the reservoir. Learning rates were chosen for the
baseline alone, on seed 100.
"""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .study import Study

Settings = dict[str, Scalar]

# Which data, what network, how many clients, and the baselines' learning rates: of FedAvg, of
# random coresets, of the reservoir
DATA: dict[str, tuple[Settings, float, float, float]] = {
    "digits": ({"task": "digits", "num-clients": 30, "net.hidden": 64}, 0.05, 0.05, 0.1),
    "Fashion-MNIST": ({"study.data": "fashion", "num-clients": 30}, 0.05, 0.02, 0.05),
    "CIFAR-10 features": (
        {"study.data": "cifar-features", "num-clients": 30, "model": "softmax"},
        *(0.02, 0.005, 0.01),
    ),
    "FEMNIST": (
        {"study.data": "femnist", "num-clients": 105, "clients-per-round": 20},
        *(0.05, 0.02, 0.1),
    ),
    "UCI-HAR": ({"study.data": "har", "num-clients": 30}, 0.02, 0.005, 0.02),
    "WISDM": ({"study.data": "wisdm", "num-clients": 51}, 0.02, 0.005, 0.02),
    "traffic": ({"study.data": "traffic", "num-clients": 30}, 0.05, 0.02, 0.05),
    "20 Newsgroups": (
        {"study.data": "news", "num-clients": 30, "model": "softmax"},
        *(5.0, 1.0, 5.0),
    ),
}
BY_USER = ("FEMNIST", "UCI-HAR", "WISDM")
NET: Settings = {"model": "mlp", "net.hidden": 64}
PRESETS = (
    *("fedavg", "cosage-feedback", "cosage", "split-test", "auxo", "ios-centred", "ios"),
    *("fedprox", "scaffold", "moon", "fedyogi", "per-fedavg"),
)
CLIENTS: Settings = {
    "study.runner": "cohorts",
    "clients-per-round": 10,
    "num-server-rounds": 60,
    "evaluate-every": 6,
    "local-epochs": 2,
    "batch-size": 20,
    "data.client-test-share": 0.2,
    "fraction-evaluate": 1.0,
}
CORESETS: Settings = {
    "study.runner": "coresets",
    "num-clients": 10,
    "client-selector": "all",
    "weighting": "uniform",
    "partition": "dirichlet",
    "split.alpha": 0.4,
    "num-server-rounds": 100,
    "evaluate-every": 10,
    "local-epochs": 2,
    "batch-size": 16,
    "momentum": 0.9,
    "schedule.kind": "cosine",
    "coreset.budget": 0.1,
}
STREAMS: Settings = {
    "study.runner": "streams",
    "fraction-train": 0.2,
    "num-server-rounds": 100,
    "evaluate-every": 10,
    "local-epochs": 5,
    "batch-size": 100_000,
    "stream.velocity": 0.01,
    "stream.capacity": 10,
}
NOISE: dict[str, Settings] = {
    "40 % wrong labels": {"noise": "closed-set", "corruption.rate": 0.4},
    "clean": {"noise": "none"},
}

ALL_SAMPLES = ("Fashion-MNIST", "FEMNIST")  # where coresets are also compared with all samples


def _data(name: str) -> tuple[Settings, Settings, float, float, float]:
    own, plain, coreset, stream = DATA[name]
    spread: Settings = (
        {"partition": "natural"}
        if name in BY_USER
        else {"partition": "dirichlet", "split.alpha": 0.3}
    )
    return {**NET, **own}, spread, plain, coreset, stream


def setting_of(name: str) -> Settings:
    """Return the data, the network and the learning rate of one data set."""
    own, spread, rate, _, _ = _data(name)
    return {**own, **spread, "learning-rate": rate}


def stream_of(name: str) -> Settings:
    """Return the same for a stream of samples."""
    own, spread, _, _, rate = _data(name)
    common = {**own, **spread, **STREAMS, "learning-rate": rate}
    common.pop("clients-per-round", None)
    return common


def clients() -> Study:
    """Return presets that replace FedAvg."""
    cells = []
    for name in DATA:
        common = {**CLIENTS, **setting_of(name)}
        cells += [
            Cell(f"{name}: {p}", {**common, "strategy": p})
            for p in PRESETS
            if p != "moon" or common["model"] != "softmax"  # which has no features of its own
        ]
    setting = (
        "60 rounds of 2 local epochs, batches of 20, 10 clients per round (20 of FEMNIST's 105), an"
        " MLP of 64 units (softmax on features and words). Data by user where there are users, else"
        " Dirichlet 0.3 over 30 clients. Accuracy on the clients' own held-out fifth."
    )
    return Study("no-harm-clients", "no-harm", setting, tuple(cells))


def coresets() -> Study:
    """Return coresets that replace random samples."""
    cells = []
    for noise, wrong in NOISE.items():
        for name in DATA:
            own, _, _, rate, _ = _data(name)
            common = {**own, **CORESETS, **wrong, "learning-rate": rate}
            common.pop("clients-per-round", None)
            cells += [
                Cell(
                    f"{noise}, {name}: random",
                    {**common, "data-selector": "random", "coreset.every": 1},
                ),
                Cell(f"{noise}, {name}: trusted", {**common, "data-selector": "trusted"}),
                Cell(f"{noise}, {name}: gcfl", {**common, "data-selector": "gcfl"}),
            ]
            if name in ALL_SAMPLES and noise != "clean":  # ten times the work
                cells.append(Cell(f"{noise}, {name}: fedavg", {**common}))
    setting = (
        "10 clients, Dirichlet 0.4, all in every round, 100 rounds of 2 local epochs over a tenth"
        " of the samples, batches of 16, momentum 0.9, cosine schedule. Accuracy on the server's"
        " test data."
    )
    return Study("no-harm-coresets", "no-harm", setting, tuple(cells))


def streams() -> Study:
    """Return rules for a stream that replace the reservoir."""
    cells = []
    for name in DATA:
        cells += [
            Cell(f"{name}: {rule}", {**stream_of(name), "data-selector": rule})
            for rule in ("reservoir", "ode-balanced", "ode")
        ]
    setting = (
        "A fifth of the clients per round, 10 places per client, a hundredth of a client's data"
        " arrives per round, 100 rounds of 5 full-batch steps. Accuracy on the server's test data,"
        " mean of the last three evaluations."
    )
    return Study("no-harm-streams", "no-harm", setting, tuple(cells))


def studies() -> list[Study]:
    """Return the three families."""
    return [clients(), coresets(), streams()]
