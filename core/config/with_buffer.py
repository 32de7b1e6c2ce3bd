"""What a buffer (FedBuff) cannot be combined with: methods whose rounds end for all at once."""

from ..methods.aggregators import Aggregation
from ..methods.catalogue import methods
from ..methods.cohort import Cohort
from ..methods.stream import StreamMethod
from .run_config import RunConfig
from .sections import AUTO

# Those that need only the replies of a round, and have been tested.
_ALLOWED = {
    "cohorts": ("none", "split-test", "ifca", "cfl"),
    "objective": ("sgd", "prox", "gce", "sce"),
    "privacy": ("none", "local-dp"),
}


def problems_of_buffer(config: RunConfig, asked: int) -> list[str]:
    """Return what stands against a buffer, if there is to be one.

    Parameters
    ----------
    config : RunConfig
        The run config.
    asked : int
        Clients that train at a time.
    """
    buffer, axes = config[Aggregation].buffer, config.axes()
    if not buffer:
        return []
    what, problems = f"aggregation.buffer = {buffer}", []
    if config.round.over_commit:
        told = f"round.over-commit = {config.round.over_commit}"
        problems.append(f"{what}: {told} waits for nobody either; set one of the two")
    if config.round.deadline == AUTO:
        told = "round.deadline = 'auto': no round waits that times could be learned from"
        problems.append(f"{what}, {told}; give seconds")
    if buffer > asked:
        problems.append(f"{what}: at most {asked}, the clients that train at a time")
    if config[Cohort].share not in ("auto", "none"):
        told = f"cohort.share = {config[Cohort].share!r}"
        problems.append(f"{what}: {told} needs the cohorts' rounds to end together; use 'none'")
    allowed = dict(_ALLOWED)
    found = methods("data-selector").values()
    allowed["data-selector"] = tuple(m.name for m in found if not isinstance(m, StreamMethod))
    for axis, names in allowed.items():
        if axes[axis] not in names:
            listed = ", ".join(names)
            problems.append(f"{what}: {axis} = {axes[axis]!r}; allowed are {listed}")
    return problems
