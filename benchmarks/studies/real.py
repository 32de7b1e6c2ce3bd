"""Real federations: hospitals, stations, speakers, and the speeds of real devices."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .study import Study

Settings = dict[str, Scalar]

_TUNED: Settings = {"personalise.epochs": 2}
# What a user would pick, and the strategies with one model for all
ROWS: dict[str, Settings] = {
    "fedavg": {"strategy": "fedavg"},
    "fedavg, tuned": {"strategy": "fedavg", **_TUNED},
    "fedyogi": {"strategy": "fedyogi"},
    "turns, fedyogi, tuned": {"strategy": "fedyogi", "client-selector": "aoi", **_TUNED},
    "scaffold": {"strategy": "scaffold"},
    "forager": {"strategy": "forager"},
}
FLAMBY: dict[str, Settings] = {
    "FedAvg": {"strategy": "fedavg", "learning-rate": 0.001},
    "FedYogi": {
        **{"strategy": "fedyogi", "learning-rate": 0.003162, "aggregation.learning-rate": 0.01},
        "aggregation.tau": 1e-8,
    },
}
HEART: Settings = {
    **{"study.data": "heart", "partition": "natural", "num-clients": 4, "fraction-train": 1.0},
    **{"model": "forager.benchmarks.studies.heads:logistic", "data.validation-share": 0.0},
    **{"num-server-rounds": 15, "evaluate-every": 15, "local-steps": 100, "batch-size": 4},
    **{"fraction-evaluate": 1.0, "learning-rate": 0.001},
}
AIR: Settings = {
    **{"study.data": "air", "partition": "natural", "num-clients": 12, "clients-per-round": 6},
    **{"model": "mlp", "net.hidden": 32, "num-server-rounds": 40, "evaluate-every": 20},
    **{"batch-size": 32, "learning-rate": 0.02, "fraction-evaluate": 1.0},
    **{"data.validation-share": 0.0, "metrics": "rmse,r2"},
}
SPOKEN: Settings = {
    **{
        "study.runner": "cohorts",
        "study.data": "spoken",
        "partition": "natural",
        "num-clients": 300,
    },
    **{"clients-per-round": 15, "model": "mlp", "net.hidden": 64, "num-server-rounds": 60},
    **{"evaluate-every": 3, "local-epochs": 2, "batch-size": 8, "learning-rate": 0.02},
    **{"devices.slow": True, "study.devices": "fedscale"},
}
SPEAK: Settings = {
    **{"study.data": "shakespeare", "data.kind": "next-token", "data.tokens": True},
    **{"partition": "natural", "num-clients": 142, "clients-per-round": 10, "model": "char-gru"},
    **{"num-server-rounds": 20, "evaluate-every": 20, "local-epochs": 2, "learning-rate": 1.0},
    **{"fraction-evaluate": 1.0, "data.validation-share": 0.0},
}
RULES: dict[str, Settings] = {
    **{
        rule: {"client-selector": rule}
        for rule in ("random", "aoi", "round-robin", "oort", "cosage", "hics", "power-of-choice")
    },
    "fedyogi": {"strategy": "fedyogi"},
    "forager": {"strategy": "forager", "serving": "model"},
    "buffer of 5": {"aggregation.buffer": 5, "num-server-rounds": 180, "evaluate-every": 9},
}
TARGET = 0.7


def heart() -> Study:
    """Return four hospitals: FLamby's FedAvg and FedYogi first, then what a user would pick."""
    cells = [
        *(Cell(f"as FLamby: {name}", {**HEART, **own}) for name, own in FLAMBY.items()),
        *(
            Cell(
                f"as FLamby, pooled test: {name}",
                {**HEART, **own, "study.data": "heart-pooled", "fraction-evaluate": 0.0},
            )
            for name, own in FLAMBY.items()
        ),
        *(Cell(f"ours: {name}", {**HEART, **own}) for name, own in ROWS.items()),
    ]
    setting = (
        "Fed-Heart-Disease: 740 patients of 4 hospitals, FLamby's features, split and scaling;"
        " logistic regression, all hospitals in every round, 15 rounds of 100 steps, batches of 4,"
        " learning rate 0.001 unless FLamby gives another. Accuracy as a mean over"
        " hospitals; pooled test: all test patients, scaled by all training patients."
    )
    return Study("real-heart", "real", setting, tuple(cells))


def air() -> Study:
    """Return stations that measure air: regression, tested on later years."""
    cells = tuple(Cell(name, {**AIR, **own}) for name, own in ROWS.items())
    setting = (
        "Beijing, 12 stations, one sample every six hours: the logarithm of fine dust (PM2.5) six"
        " hours ahead, from the measurements at the time. Training on the first 70 % of four years,"
        " tests on the rest, by station. An MLP of 32, 6 stations per round, 40 rounds of one"
        " epoch, batches of 32, learning rate 0.02. RMSE in standard deviations of the target."
    )
    return Study("real-air", "real", setting, cells, range(5))


def spoken() -> Study:
    """Return who trains, where data and devices are as uneven as they really are."""
    cells = tuple(Cell(name, {**SPOKEN, **own}) for name, own in RULES.items())
    setting = (
        "Images of Fashion-MNIST, divided like ten words among 300 speakers of Speech Commands, on"
        " devices with the speeds and connections of FedScale's trace; an MLP of 64, 15 clients per"
        " round, 60 rounds of 2 local epochs (180 updates of 5 clients with the buffer), batches of"
        " 8, learning rate 0.02. Accuracy on the server's test data."
    )
    return Study("real-devices", "real", setting, cells, range(5))


def shakespeare() -> Study:
    """Return next characters of 142 speakers."""
    names = ("fedavg", "fedavg, tuned", "turns, fedyogi, tuned", "forager")
    cells = tuple(Cell(name, {**SPEAK, **ROWS[name]}) for name in names)
    setting = (
        "Shakespeare, next character, 142 speakers with at most 3,000 characters each, the last"
        " fifth of them for tests; a GRU, 10 speakers per round, 20 rounds of 2 local epochs."
    )
    return Study("real-speakers", "real", setting, cells, range(3))


def studies() -> list[Study]:
    """Return all of them."""
    return [heart(), air(), spoken(), shakespeare()]
