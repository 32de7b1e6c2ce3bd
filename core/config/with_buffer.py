"""What a buffer (FedBuff) and late updates cannot be combined with: rounds that end for all."""

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
    """Return what stands against a buffer or late updates, if there are to be any.

    Parameters
    ----------
    config : RunConfig
        The run config.
    asked : int
        Clients that train at a time.
    """
    buffer, late = config[Aggregation].buffer, config[Aggregation].late
    if not buffer:
        return _of_earlier_rounds("aggregation.late = true", config) if late else []
    what, problems = f"aggregation.buffer = {buffer}", []
    if late:
        problems.append(f"{what}: aggregation.late = true has no use, no update is late; set one")
    if config.round.over_commit:
        told = f"round.over-commit = {config.round.over_commit}"
        problems.append(f"{what}: {told} waits for nobody either; set one of the two")
    if config.round.deadline == AUTO:
        told = "round.deadline = 'auto': no round waits that times could be learned from"
        problems.append(f"{what}, {told}; give seconds")
    if buffer > asked:
        problems.append(f"{what}: at most {asked}, the clients that train at a time")
    return problems + _of_earlier_rounds(what, config)


def _of_earlier_rounds(what: str, config: RunConfig) -> list[str]:
    """Return what cannot take updates of models of earlier rounds."""
    axes, problems = config.axes(), []
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
