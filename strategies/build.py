"""From a config to a stack of layers."""

from collections.abc import Callable
from functools import partial

from flwr.serverapp.strategy import Strategy

from ..core.config import RunConfig
from ..core.methods.aggregators import Aggregation
from ..core.methods.base import load
from ..core.methods.catalogue import chosen, methods
from .checks import check_model, check_personal
from .federation.federation import Federation
from .layers.base import Layer
from .layers.buffer import Buffer
from .layers.fine_tune import FineTuneLayer
from .layers.quarantine import QuarantineLayer

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
