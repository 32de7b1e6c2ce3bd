"""What cohorts have in common: one body under their own heads, or what all clients learn.

Heads over a shared body: all clients train one body, each cohort its own last layer. Little data is
enough for a head, and a body gains from everyone's (Arivazhagan et al., 2019: *Federated Learning
with Personalization Layers*; there, each client is a cohort of its own).

Shared changes: a cohort's own change is a noisy estimate if few of its members took part, and a
small cohort has little data to learn from. A cohort's step is therefore a weighted mean of its own
change and the change of all clients; the weight of its own change is the squared share of clients
that trained. With weight 0 all cohorts are one model; with weight 1 (all clients train in every
round) they share nothing.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvgM, Strategy

from ...core.config import RunConfig
from ...core.learning.model_arrays import travelling
from ...core.methods.cohort import CohortSettings
from ...core.tasks import load_task
from ...core.tasks.errors import TaskError
from ...core.tasks.models import linear_head
from ...core.wire.arrays import from_record, to_record
from ..aggregation.running_mean import RunningMean


def head_names(config: RunConfig) -> frozenset[str]:
    """Return the arrays of a cohort's own head, if any; TaskError if the model has none."""
    share = config[CohortSettings].share
    if share != "body":
        return frozenset()
    what = f"model = {config.model!r}, cohort.share = {share!r}"
    model = load_task(config.task_spec()).build_model()
    try:
        head = linear_head(model)
    except TaskError as error:
        raise TaskError(f"{what}: {error}") from error
    names = travelling(model)
    own = frozenset(name for name in names if name.startswith(f"{head}."))
    if not own or len(own) == len(names):
        which = "its last layer" if own else "the layers below its last one"
        raise TaskError(f"{what}: of this model only {which} can be trained; use 'none'")
    return own


def with_common_body(
    models: Mapping[str, ArrayRecord], weights: Mapping[str, float], own: frozenset[str]
) -> dict[str, ArrayRecord]:
    """Return cohorts' models with one body, the weighted mean of theirs, and their own heads.

    Some of them count, at least one above 0; the others take over the mean.
    """
    mean = RunningMean()
    for cohort, weight in weights.items():
        arrays = from_record(models[cohort])
        mean.add({n: a for n, a in arrays.items() if n not in own}, {}, weight=weight)
    body = mean.arrays
    return {
        cohort: to_record({name: body.get(name, array) for name, array in from_record(m).items()})
        for cohort, m in models.items()
    }


def forget_model(strategies: Iterable[Strategy]) -> None:
    """Let Flower's strategies begin the next round from the model that they are given.

    Of those that need the present model only FedAvgM keeps what it aggregated itself.
    """
    for strategy in strategies:
        if isinstance(strategy, FedAvgM):
            strategy.current_arrays = None


def with_shared_changes(
    before: Mapping[str, ArrayRecord],
    after: Mapping[str, ArrayRecord],
    weights: Mapping[str, float],
    own: float,
) -> dict[str, ArrayRecord]:
    """Return cohorts' models, moved by their own change and by everybody's.

    ``weights`` say how much the change of each cohort that trained counts in everybody's, at least
    one above 0; ``own`` is the weight of a cohort's own change, from 0 to 1. Those that did not
    train have none.
    """
    old, new = ({c: from_record(m) for c, m in models.items()} for models in (before, after))
    total = sum(weights.values())
    moved: dict[str, dict[str, np.ndarray]] = {cohort: {} for cohort in old}
    for name in next(iter(old.values())):
        changes = {cohort: new[cohort][name] - old[cohort][name] for cohort in weights}
        common = sum(weights[cohort] / total * changes[cohort] for cohort in weights)
        for cohort, arrays in old.items():
            mine = changes.get(cohort)
            change = common if mine is None else own * mine + (1.0 - own) * common
            moved[cohort][name] = (arrays[name] + change).astype(arrays[name].dtype)
    return {cohort: to_record(arrays) for cohort, arrays in moved.items()}
