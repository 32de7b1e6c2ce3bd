"""The arena: every rule of a kind, as ``forager arena`` runs them, and who trains on real data."""

from ...core.config import Scalar
from ...tools.engine.local import LocalResult
from ...tools.experiments.arena import COMMON, FIRST, KINDS, Kind, cells, run_rule
from ...tools.experiments.records import Cell
from .data import prepared
from .no_harm import setting_of
from .runs import cache_folder
from .study import Study

RUNNER = "forager.benchmarks.studies.arena:run_arena"
REAL = ("FEMNIST", "UCI-HAR", "WISDM", "traffic", "20 Newsgroups")
SETTING = (
    "FedAvg with 50 clients, 5 per round, 40 rounds of 2 local epochs, learning rate 0.05, on"
    " devices whose speed and connection differ (log-normal, spread 1; 51,496 devices that were"
    " measured have .88 and 1.12). The last five as in [eight data sets](no-harm.md): an MLP of 64"
    " or softmax, with clients and learning rates from there."
)
FEWER = (
    "As above with 20 clients, 5 per round; a tenth of the samples, chosen anew every 10 rounds,"
    " and streams of a fiftieth of a client's data per round into 10 places; cohorts with 10 of 20"
    " clients per round, judged by the mean accuracy on the clients' own held-out fifth."
)


def run_arena(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one rule; on a prepared data set, if the cell names one."""
    config = {key: value for key, value in overrides.items() if key != "study.data"}
    if "study.data" in overrides:
        path = prepared(str(overrides["study.data"]), cache_folder())
        config |= {"task": "npz", "data.path": str(path)}
    return run_rule(config, quiet=quiet)


def real(kind: Kind) -> list[Cell]:
    """Return every rule of who trains on data that no package downloads."""
    return [
        Cell(f"{data}: {rule}", {**COMMON, **_of(data), "clients-per-round": 5, kind.axis: rule})
        for data in REAL
        for rule in kind.rules()
    ]


def _of(data: str) -> dict[str, Scalar]:
    return {key: value for key, value in setting_of(data).items() if key != "clients-per-round"}


def studies() -> list[Study]:
    """Return the one study."""
    built_in = [cell for kind in KINDS.values() for cell in cells(kind, kind.rules())]
    everything = (*built_in, *real(KINDS[FIRST]))
    return [Study("arena", "arena", SETTING, everything, range(3), RUNNER)]
