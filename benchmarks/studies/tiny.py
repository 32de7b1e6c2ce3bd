"""One cell per paper that takes a second, so that tests can compare a new run with its record."""

from ...core.config import Scalar
from ...tools.experiments.records import Cell
from .study import Study

COMMON: dict[str, Scalar] = {
    **{"task": "digits", "model": "softmax", "num-clients": 8, "num-server-rounds": 5},
    **{"evaluate-every": 1, "learning-rate": 0.1},
}
CELLS: dict[str, dict[str, Scalar]] = {
    "cosage-feedback": {
        "strategy": "cosage-feedback",
        "clients-per-round": 3,
        "study.runner": "classes",
    },
    "trusted": {
        **{"strategy": "trusted", "study.runner": "coresets", "coreset.every": 2},
        **{"noise": "closed-set", "corruption.rate": 0.4},
    },
    "ode-balanced": {"strategy": "ode-balanced", "study.runner": "streams", "stream.capacity": 8},
    "split-test": {
        **{"strategy": "split-test", "study.runner": "cohorts", "groups.kind": "label-permutation"},
        **{"groups.count": 2, "partition": "iid", "data.client-test-share": 0.2},
        **{"fraction-evaluate": 1.0},
    },
    "ios-centred": {
        **{"strategy": "ios-centred", "study.runner": "cohorts", "data.client-test-share": 0.2},
        **{"fraction-evaluate": 1.0, "partition": "pathological", "split.classes-per-client": 2},
    },
}


def studies() -> list[Study]:
    """Return the one study."""
    cells = tuple(Cell(name, {**COMMON, **changes}) for name, changes in CELLS.items())
    setting = "Digits, 8 clients, softmax, 5 rounds: to see that a run still gives its record."
    return [Study("tiny", "tiny", setting, cells, range(1))]
