"""How updates become a model: Flower's strategies."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from .base import (
    AtLeastOne,
    BelowOne,
    Configured,
    Count,
    Method,
    NonNegative,
    Positive,
    Settings,
    key,
)


class Aggregation(Settings):
    """Settings of the aggregators."""

    section = "aggregation"
    learning_rate: NonNegative = key(
        0.0, "learning rate of the server (GCFL's eta_g); 0 uses Flower's default"
    )
    momentum: BelowOne = key(0.9, "momentum of fedavgm and paced; of fedadam and fedyogi, beta 1")
    tau: Positive = key(1e-3, "degree of adaptivity")
    q: NonNegative = key(0.1, "how much qfedavg favours clients with a high loss")
    trim: Annotated[float, Field(ge=0.0, lt=0.5)] = key(
        0.2, "share that trimmed-mean drops at each end"
    )
    malicious: Count = key(1, "attackers that krum, multi-krum and bulyan withstand")
    keep: AtLeastOne = key(5, "updates that multi-krum averages")
    buffer: Count = key(
        0,
        "a round ends after this many updates while the other clients keep training "
        "(FedBuff); 0 waits for all",
    )
    staleness: NonNegative = key(
        0.5,
        "with a buffer or late updates, one that began n rounds ago is weighted (1 + n) ** -this",
    )
    late: bool = key(False, "updates that come after their round are aggregated in the next one")


@dataclass(frozen=True, kw_only=True)
class Aggregator(Method):
    """One of Flower's strategies."""

    axis: str = "aggregator"
    per_attacker: int = 0  # with f attackers it needs this many times f, and three clients more

    def least_clients(self, config: Configured) -> int:
        """Return the fewest updates among which it can detect attackers."""
        return self.per_attacker * config[Aggregation].malicious + 3 if self.per_attacker else 1


def _aggregator(name: str, about: str, *reads: str, **more: Any) -> Aggregator:
    place = f"strategies.aggregation.aggregators:{name.replace('-', '_')}"
    reads = (*reads, "buffer", "staleness", "late")
    return Aggregator(
        name=name, about=about, core=place, settings=(Aggregation,), reads=reads, **more
    )


_MEAN: dict[str, Any] = {"offers": ("mean aggregator",)}
_SPARSE = (
    "most entries of an update are not sent and count as 0, which looks like agreement; use"
    " uplink = 'dense' or raise top-k.density"
)
_ROBUST: dict[str, Any] = {
    "models_per_reply": 3.0,
    "suffers": {("uplink", name): _SPARSE for name in ("top-k", "top-k-plain")},
}
# Replies wait on disk, unless they come as one table.
_BY_ENTRY = _ROBUST | {"models_per_reply": 0.0, "models_per_simulated_reply": 3.0}
_ADAPTIVE = ("learning-rate", "momentum", "tau")

METHODS = (
    _aggregator(
        "fedavg",
        "the weighted mean",
        "learning-rate",
        default=True,
        presets={"fedavg": {}},
        **_MEAN,
    ),
    _aggregator("fedavgm", "the mean, with momentum", "learning-rate", "momentum", **_MEAN),
    _aggregator("fedadam", "the mean as a gradient of Adam", *_ADAPTIVE, **_MEAN),
    _aggregator(
        "fedyogi", "the mean as a gradient of Yogi", *_ADAPTIVE, presets={"fedyogi": {}}, **_MEAN
    ),
    _aggregator("fedadagrad", "the mean as a gradient of Adagrad", "learning-rate", "tau", **_MEAN),
    _aggregator(
        "paced",
        "the mean, with momentum and a step that follows how well successive rounds agree",
        "momentum",
        after="Baydin et al., 2018: Online Learning Rate Adaptation with Hypergradient Descent",
        **_MEAN,
    ),
    _aggregator(
        "qfedavg", "clients with a high loss count more", "q", sends=("loss",), models_per_reply=1.1
    ),
    _aggregator("median", "the median of each entry", **_BY_ENTRY),
    _aggregator("trimmed-mean", "the mean without the extremes of each entry", "trim", **_BY_ENTRY),
    # Krum needs n >= 2 f + 3 (Blanchard et al., 2017), Bulyan 4 f + 3 (El Mhamdi et al., 2018).
    _aggregator(
        "krum", "the update nearest to most others", "malicious", per_attacker=2, **_ROBUST
    ),
    _aggregator(
        "multi-krum",
        "the mean of the updates nearest to most others",
        "malicious",
        "keep",
        per_attacker=2,
        **_ROBUST,
    ),
    _aggregator(
        "bulyan",
        "a trimmed mean of what krum chooses",
        "malicious",
        per_attacker=4,
        **(_ROBUST | {"models_per_reply": 4.9}),
    ),
    _aggregator(
        "clipped-mean",
        "the weighted mean of updates, none longer than the median",
        after="Sun et al., 2019: Can You Really Backdoor Federated Learning?",
        models_per_reply=3.9,
    ),
    _aggregator(
        "fltrust",
        "updates count by how well they agree with the server's own, on clean data",
        paper="Cao et al., 2021: FLTrust: Byzantine-robust Federated Learning via Trust "
        "Bootstrapping",
        needs=("server data",),
        models_per_reply=3.0,
    ),
)
