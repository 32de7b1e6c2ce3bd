"""Flower's strategies by name, configured to sample all nodes that they see.

``common`` are settings that all of them have: see :class:`FlowerAggregator`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from flwr.serverapp import strategy as flower

from ...core.config import RunConfig
from ...core.methods.aggregators import Aggregation
from ...core.wire.keys import TRAIN_LOSS
from .clipped_mean import ClippedAvg
from .flower_aggregator import FlowerAggregator
from .fltrust import FLTrust
from .paced import PacedAvg

# Behind a view of the grid a strategy samples every client it sees, even a single one.
_EVERYONE = {f"min_{what}_nodes": 1 for what in ("train", "evaluate", "available")}
_RATE = "learning_rate"  # of the server; 0 leaves a strategy's own


def _built(
    kind: Any,
    names: Mapping[str, str],
    config: RunConfig,
    *,
    mean_like: bool = False,
    **common: Any,
) -> FlowerAggregator:
    """Return a strategy with our settings, by its names for them."""
    settings = {name: getattr(config[Aggregation], own) for name, own in names.items()}
    given = {name: value for name, value in settings.items() if value or names[name] != _RATE}
    return FlowerAggregator(kind(**_EVERYONE, **given), mean_like=mean_like, **common)


def fedavg(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Weighted mean (McMahan et al., 2017); with a learning rate, a step towards it."""
    if not config[Aggregation].learning_rate:
        return _built(flower.FedAvg, {}, config, mean_like=True, **common)
    stepping = partial(flower.FedAvgM, server_momentum=0.0)
    return _built(stepping, {"server_learning_rate": _RATE}, config, mean_like=True, **common)


def qfedavg(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Fair aggregation that weights clients by their loss (Li et al., 2020)."""
    rate = config.learning_rate
    kind = partial(flower.QFedAvg, client_learning_rate=rate, train_loss_key=TRAIN_LOSS)
    return _built(kind, {"q": "q"}, config, needs=(TRAIN_LOSS,), **common)


def fltrust(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Mean of updates weighted by agreement with the server's own (Cao et al., 2021)."""
    return _built(partial(FLTrust, config), {}, config, **common)


# Server momentum (Hsu et al., 2019)
_momentum = {"server_momentum": "momentum"}
paced = partial(_built, PacedAvg, _momentum, mean_like=True)
_momentum = {**_momentum, "server_learning_rate": _RATE}
fedavgm = partial(_built, flower.FedAvgM, _momentum, mean_like=True)

# The adaptive federated optimisers (Reddi et al., 2021)
_adaptive = {"tau": "tau", "eta": _RATE}
fedadagrad = partial(_built, flower.FedAdagrad, _adaptive, mean_like=True)
_adaptive = {**_adaptive, "beta_1": "momentum"}
fedadam = partial(_built, flower.FedAdam, _adaptive, mean_like=True)
fedyogi = partial(_built, flower.FedYogi, _adaptive, mean_like=True)

# Entry by entry (Yin et al., 2018)
median = partial(_built, flower.FedMedian, {}, by_entry=True)
trimmed_mean = partial(_built, flower.FedTrimmedAvg, {"beta": "trim"}, by_entry=True)

# The updates closest to their neighbours (Blanchard et al., 2017); trimmed, El Mhamdi et al., 2018
_attackers = {"num_malicious_nodes": "malicious"}
krum = partial(_built, flower.Krum, _attackers)
multi_krum = partial(_built, flower.MultiKrum, {**_attackers, "num_nodes_to_select": "keep"})
bulyan = partial(_built, flower.Bulyan, _attackers)
clipped_mean = partial(_built, ClippedAvg, {})
