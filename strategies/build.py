"""From a config to a stack of layers, and what its model must have."""

from collections.abc import Callable
from functools import partial

import torch
from flwr.serverapp.strategy import Strategy

from ..core.config import RunConfig
from ..core.learning.features import features_of
from ..core.learning.model_arrays import read_arrays
from ..core.learning.personal import kept_names
from ..core.methods.aggregators import Aggregation
from ..core.methods.base import Method, load
from ..core.methods.catalogue import chosen, methods
from ..core.methods.stream import StreamSettings
from ..core.tasks import Samples, Task, load_task
from ..core.tasks.errors import TaskError
from ..core.tasks.models.head import linear_head
from .federation.federation import Federation
from .layers.base import Layer
from .layers.buffer import Buffer
from .layers.fine_tune import FineTuneLayer
from .layers.quarantine import QuarantineLayer


def check_model(method: Method, config: RunConfig) -> None:
    """Raise an error that says who wants it unless the model has what a method needs."""
    needs = method.needs_in(config)
    if not {"linear head", "classes"} & set(needs):
        return
    task = load_task(config.task_spec())
    if "classes" in needs and not task.problem.has_classes:
        raise TaskError(
            f"{method}: works class by class, and task {config.task!r} is "
            f"{task.problem.kind}, without a class per sample; {method.axis} can be "
            f"{', '.join(_any_problem(method.axis))}"
        )
    if "linear head" not in needs:
        return
    if method.axis == "data-selector" and not task.problem.has_classes:
        return  # by the gradients of the last layer, whatever it is
    model = task.build_model()
    try:
        features_of(model, read_arrays(model), _two_samples(task))
        if "output bias" in needs and model.get_submodule(linear_head(model)).bias is None:
            raise TaskError("its last layer has no bias; use torch.nn.Linear(..., bias=True)")
    except TaskError as error:
        raise TaskError(f"model = {config.model!r}, {method}: {error}") from error


def check_personal(config: RunConfig) -> None:
    """Raise an error unless the model has the part that clients are to keep, and more."""
    if config.personalise.keep != "none":
        kept_names(load_task(config.task_spec()).build_model(), config.personalise.keep)


def _any_problem(axis: str) -> list[str]:
    """Return the methods of an axis that work on every kind of problem, streams left out."""
    found = methods(axis).values()
    return [m.name for m in found if "classes" not in m.needs and StreamSettings not in m.settings]


def _two_samples(task: Task) -> Samples:
    test = task.server_data().test
    return test.select(torch.arange(min(2, len(test))))


# Axes whose layers stand around the aggregator of each model, innermost first, and around all.
_EACH_MODEL = ("privacy", "client-selector", "data-selector", "objective")
_WHOLE_RUN = ("work", "privacy", "uplink")


def build_strategy(
    config: RunConfig,
    federation: Federation | None = None,
    single: Callable[[RunConfig, Federation], Layer] | None = None,
) -> Layer:
    """Return the stack that a config describes; ``single`` makes what trains one model.

    >>> from ..core.config import read_config
    >>> build_strategy(read_config({"uplink": "top-k", "aggregator": "fedyogi"})).describe()
    'SparseUplink(Quarantine(Selection(FlowerAggregator(FedYogi))))'
    """
    axes, federation = config.axes(), federation or Federation()
    for method in chosen(axes):
        check_model(method, config)
    check_personal(config)
    make = partial(single or single_model_stack, config, federation)
    cohorts = methods("cohorts")[config.cohorts]
    stack: Layer = load(cohorts.outer)(make, config) if cohorts.outer else make()
    stack = QuarantineLayer.of_run(stack, config)
    for axis in _WHOLE_RUN:
        method = methods(axis)[axes[axis]]
        stack = load(method.outer)(stack, config) if method.outer else stack
    return stack


def single_model_stack(
    config: RunConfig, federation: Federation, aggregator: Layer | None = None
) -> Layer:
    """Return what trains one model: who is chosen, on what they train, how it is aggregated."""
    make = load(methods("aggregator")[config.aggregator].core)
    equal = config.weighting == "uniform"
    stack: Strategy = aggregator or make(config, equal_weights=equal, federation=federation)
    if config[Aggregation].buffer or config[Aggregation].late:
        stack = Buffer(stack, config[Aggregation].staleness)
    if config.fine_tune.epochs:
        stack = FineTuneLayer(stack, config)
    for axis in _EACH_MODEL:
        method = methods(axis)[config.axes()[axis]]
        stack = load(method.layer)(stack, config) if method.layer else stack
    assert isinstance(stack, Layer)
    return stack
