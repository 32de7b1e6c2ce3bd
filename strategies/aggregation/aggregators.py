"""Flower's strategies by name, set up to take everyone they are shown.

``common`` are settings that all of them have: see :class:`FlowerAggregator`.
"""

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
_EVERYONE: dict[str, Any] = {
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}


def _learning_rate(config: RunConfig, name: str) -> dict[str, Any]:
    """Return the server's learning rate by the strategy's name for it, if it is set."""
    rate = config[Aggregation].learning_rate
    return {name: rate} if rate else {}


def fedavg(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Weighted mean (McMahan et al., 2017); with a learning rate, a step towards it."""
    rate = _learning_rate(config, "server_learning_rate")
    if rate:
        inner = flower.FedAvgM(**_EVERYONE, **rate, server_momentum=0.0)
        return FlowerAggregator(inner, mean_like=True, **common)
    return FlowerAggregator(flower.FedAvg(**_EVERYONE), mean_like=True, **common)


def fedavgm(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Mean with server momentum (Hsu et al., 2019)."""
    rate = _learning_rate(config, "server_learning_rate")
    inner = flower.FedAvgM(**_EVERYONE, **rate, server_momentum=config[Aggregation].momentum)
    return FlowerAggregator(inner, mean_like=True, **common)


def paced(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Mean with momentum and a step that follows how well successive rounds agree."""
    inner = PacedAvg(**_EVERYONE, server_momentum=config[Aggregation].momentum)
    return FlowerAggregator(inner, mean_like=True, **common)


def _adaptive(
    cls: Any, config: RunConfig, *, second_moment: bool = True, **common: Any
) -> FlowerAggregator:
    settings = {"tau": config[Aggregation].tau, **_learning_rate(config, "eta")}
    if second_moment:
        settings["beta_1"] = config[Aggregation].momentum
    return FlowerAggregator(cls(**_EVERYONE, **settings), mean_like=True, **common)


# The adaptive federated optimisers (Reddi et al., 2021)
fedadam = partial(_adaptive, flower.FedAdam)
fedyogi = partial(_adaptive, flower.FedYogi)
fedadagrad = partial(_adaptive, flower.FedAdagrad, second_moment=False)


def qfedavg(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Fair aggregation that weights clients by their loss (Li et al., 2020)."""
    inner = flower.QFedAvg(
        client_learning_rate=config.learning_rate,
        q=config[Aggregation].q,
        train_loss_key=TRAIN_LOSS,
        **_EVERYONE,
    )
    return FlowerAggregator(inner, mean_like=False, needs=(TRAIN_LOSS,), **common)


def median(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Coordinate-wise median (Yin et al., 2018)."""
    inner = flower.FedMedian(**_EVERYONE)
    return FlowerAggregator(inner, mean_like=False, by_entry=True, **common)


def trimmed_mean(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Coordinate-wise mean without the tails (Yin et al., 2018)."""
    inner = flower.FedTrimmedAvg(**_EVERYONE, beta=config[Aggregation].trim)
    return FlowerAggregator(inner, mean_like=False, by_entry=True, **common)


def krum(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Take the one update closest to its neighbours (Blanchard et al., 2017)."""
    inner = flower.Krum(**_EVERYONE, num_malicious_nodes=config[Aggregation].malicious)
    return FlowerAggregator(inner, mean_like=False, **common)


def multi_krum(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Take the mean of the updates closest to their neighbours (Blanchard et al., 2017)."""
    inner = flower.MultiKrum(
        **_EVERYONE,
        num_malicious_nodes=config[Aggregation].malicious,
        num_nodes_to_select=config[Aggregation].keep,
    )
    return FlowerAggregator(inner, mean_like=False, **common)


def bulyan(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Krum's choice, then a trimmed mean of it (El Mhamdi et al., 2018)."""
    inner = flower.Bulyan(**_EVERYONE, num_malicious_nodes=config[Aggregation].malicious)
    return FlowerAggregator(inner, mean_like=False, **common)


def clipped_mean(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Weighted mean of updates clipped to their median norm."""
    return FlowerAggregator(ClippedAvg(**_EVERYONE), mean_like=False, **common)


def fltrust(config: RunConfig, **common: Any) -> FlowerAggregator:
    """Mean of updates weighted by agreement with the server's own (Cao et al., 2021)."""
    return FlowerAggregator(FLTrust(config, **_EVERYONE), mean_like=False, **common)
