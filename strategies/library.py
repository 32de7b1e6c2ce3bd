"""Any method around a Flower strategy, in your own app.

``forager.strategy("cosage", FedAvg(fraction_train=0.3), model=Net)`` is a Flower strategy: the same
stack of layers as in Forager's own app. The Flower strategy sets how many clients take part, as
always. The client side is :func:`forager.client_mod`; every message carries the settings to it.
"""

import copy
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import nn

from ..core.config import RunConfig, default_config, read_config
from ..core.config.run_config import Scalar
from ..core.tasks import load_task
from ..core.tasks.own_app import AppProblem, register
from ..core.wire.keys import ARRAYS, CONFIG, NUM_EXAMPLES, SECONDS, SETTINGS
from ..core.wire.versions import why_nobody_connects
from ..selectors.client_selectors.base import ClientSelector
from .aggregation.flower_aggregator import FlowerAggregator
from .build import build_strategy, single_model_stack
from .federation.federation import Federation
from .layers.base import Layer, Outcome, describe
from .layers.cohorts import Cohorts
from .layers.selection import Selection

_log = logging.getLogger("forager")
# What the layers read and write has these names; Flower's strategies can use others.
_KEYS = {"arrayrecord_key": ARRAYS, "configrecord_key": CONFIG, "weighted_by_key": NUM_EXAMPLES}
_EVERYONE = {"fraction_train": 1.0, "fraction_evaluate": 1.0}
_ANYBODY = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
_LONELY = 30  # seconds without any client after which the log says what to check
_EMPTY_ROUNDS = 3  # in a row without anybody to train, after which to fail
_SERVERS_OWN = ("output-dir", "run-name", "resume-from")  # settings that are no client's business

Settings = str | Mapping[str, Scalar]
Model = nn.Module | Callable[[], nn.Module]


def strategy(
    settings: Settings,
    inner: Strategy | None = None,
    *,
    model: Model,
    data: Any = None,
    loss: Callable[[Any, Any], Any] | None = None,
    selector: ClientSelector | None = None,
) -> "OwnAppStrategy":
    """Wrap a Flower strategy in one or several methods.

    Parameters
    ----------
    settings : str or mapping
        The name of a preset, or keys of Forager's run config: ``{"strategy": "gcfl",
        "coreset.budget": 0.5}``.
    inner : Strategy, optional
        One of Flower's, or your own; FedAvg by default. Its ``fraction_train`` and
        ``fraction_evaluate`` set how many clients take part, its ``min_available_nodes`` how many
        must be connected.
    model : Module or callable
        The model, or a function that returns one.
    data : pair of arrays or tensors, data set or data loader, optional
        The server's own samples, for methods that need them.
    loss : callable, optional
        As in :func:`forager.client_mod`.
    selector : ClientSelector, optional
        Your own rule for choosing clients.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 2))
    >>> strategy("cosage", FedAvg(fraction_train=0.3), model=net).describe()
    'SparseUplink(Quarantine(Selection(FlowerAggregator(FedAvg))))'
    """
    flower = FedAvg() if inner is None else inner
    if not isinstance(flower, Strategy) or isinstance(flower, Layer):
        raise TypeError(f"inner: expected one of Flower's strategies, got {flower!r}")
    if selector is not None and not isinstance(selector, ClientSelector):
        raise TypeError(f"selector: expected a rule such as CosAge(), got {selector!r}")
    part = {
        "fraction-train": float(getattr(flower, "fraction_train", 1.0)),
        "fraction-evaluate": float(getattr(flower, "fraction_evaluate", 0.0)),
        "clients-per-round": 0,
    }
    flat = own_app_config(part | _flat(settings), model, data, loss)
    config, everyone = read_config(flat), _everyone(flower)
    deadline = config.round.question_deadline
    federation = Federation(
        deadline=deadline, identify_timeout=deadline, route="train", settings=for_clients(flat)
    )
    single = partial(_single_model, flower=everyone, selector=selector)
    return OwnAppStrategy(build_strategy(config, federation, single), flower)


def own_app_config(
    settings: Settings, model: Model, data: Any, loss: Callable[[Any, Any], Any] | None
) -> dict[str, Scalar]:
    """Return the flat run config of an app's own task."""
    given = sorted({"task", "model"} & _flat(settings).keys())
    if given:
        raise ValueError(f"settings: {', '.join(given)}: the task and the model are your app's own")
    problem = AppProblem(model, data, loss)
    name = register(problem)
    load_task.cache_clear()  # another model of this name may have been there
    known: dict[str, Scalar] = {"task": name, "data.num-classes": problem.outputs}
    return {**default_config(), **known, **_flat(settings)}


def for_clients(flat: Mapping[str, Scalar]) -> str:
    """Return what clients of another app must know of a run config."""
    usual = default_config()
    told = {k: v for k, v in flat.items() if k in usual and v != usual[k] and k not in _SERVERS_OWN}
    return json.dumps(told, sort_keys=True)


def _flat(settings: Settings) -> dict[str, Scalar]:
    return {"strategy": settings} if isinstance(settings, str) else dict(settings)


def _single_model(
    config: RunConfig, federation: Federation, *, flower: Strategy, selector: ClientSelector | None
) -> Layer:
    """Return what trains one model, by a copy of a Flower strategy."""
    base = FlowerAggregator(copy.deepcopy(flower), mean_like=False, federation=federation)
    stack = single_model_stack(config, federation, base)
    for layer in _layers(stack):
        if isinstance(layer, Selection):
            layer.part.empty_rounds = _EMPTY_ROUNDS
            if selector is not None:
                layer.use(copy.deepcopy(selector))
    return stack


class OwnAppStrategy(Layer):
    """A stack of layers around a Flower strategy, under Flower's own loop."""

    def __init__(self, inner: Layer, flower: Strategy) -> None:
        super().__init__(inner)
        self._flower = flower
        self._least = int(getattr(flower, "min_available_nodes", 1))

    def describe(self) -> str:
        """Return the stack as one line."""
        return describe(self.inner)

    def summary(self) -> None:
        """Log the settings of the Flower strategy as they were given."""
        self._flower.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait for the clients that the strategy needs, choose some, and send the settings."""
        seconds = 0
        while len(there := list(grid.get_node_ids())) < self._least:
            if seconds == 0:
                _log.info("waiting for %d clients, %d are connected", self._least, len(there))
            if seconds == _LONELY and not there:
                _log.warning(why_nobody_connects())
            time.sleep(1.0)
            seconds += 1
        config[SETTINGS] = self.federation.settings
        requests = list(super().configure_train(server_round, arrays, config, grid))
        chose = "configure_train: chose %d of %d nodes"
        logging.getLogger("flwr").info(chose, len(requests), len(there))
        return requests

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate; return the metrics that the app's own train function sent."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        ours = (NUM_EXAMPLES, SECONDS)
        if metrics is not None:
            metrics = MetricRecord({n: value for n, value in metrics.items() if n not in ours})
        return arrays, metrics

    @property
    def members(self) -> Mapping[str, str]:
        """The cohort of each client, by its name; empty without cohorts."""
        found = self._cohorts()
        return {} if found is None else found.members

    def cohort_models(self) -> dict[str, ArrayRecord]:
        """Return the model of each cohort; none without cohorts."""
        found = self._cohorts()
        return {} if found is None else dict(found.leaf_models)

    def _cohorts(self) -> Cohorts | None:
        return next((layer for layer in _layers(self) if isinstance(layer, Cohorts)), None)


def _layers(stack: Strategy) -> Iterable[Layer]:
    while isinstance(stack, Layer):
        yield stack
        stack = stack.inner


def _everyone(strategy: Strategy) -> Strategy:
    """Return a copy of a strategy that trains all clients it sees, even a single one."""
    for attribute, expected in _KEYS.items():
        found = getattr(strategy, attribute, expected)
        if found != expected:
            kind = type(strategy).__name__
            raise ValueError(f"{kind}({attribute}={found!r}): Forager's layers need {expected!r}")
    own = copy.copy(strategy)
    for name, value in {**_EVERYONE, **dict.fromkeys(_ANYBODY, 1)}.items():
        if hasattr(own, name):
            setattr(own, name, value)
    return own
