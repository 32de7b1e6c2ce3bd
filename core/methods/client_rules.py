"""Published rules by entropy, balance, correlation, diversity and need of clients."""

from dataclasses import dataclass
from typing import Any

from .base import Configured
from .selector import Selector, Summary


@dataclass(frozen=True, kw_only=True)
class HicsMethod(Selector):
    """HiCS-FL, whose preference fades in the course of the run."""

    def arguments(self, config: Configured) -> dict[str, Any]:
        """Return the rounds of the run."""
        return {"rounds": max(1, config.num_server_rounds)}


METHODS = (
    HicsMethod(
        name="hics",
        about="clients with many classes first, estimated from the output layer's updates",
        paper="Chen and Vikalo, 2024: Heterogeneity-Guided Client Sampling (HiCS-FL)",
        core="selectors.client_selectors.hics:Hics",
        needs=("classes", "linear head", "output bias"),
    ),
    Selector(
        name="fed-cbs",
        about="sets of clients whose pooled classes are balanced (receives label counts)",
        paper="Zhang et al., 2023: Fed-CBS, Client Sampling via Class-Imbalance Reduction",
        core="selectors.client_selectors.fed_cbs:FedCbs",
        sends=("labels",),
        needs=("classes",),
    ),
    Selector(
        name="fedcor",
        about="clients expected to lower all losses most, by a Gaussian process",
        paper="Tang et al., 2022: FedCor, Correlation-Based Active Client Selection",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.fedcor:FedCor",
        sends=("loss",),
    ),
    Selector(
        name="divfl",
        about="clients whose last updates represent those of all others",
        paper="Balakrishnan et al., 2022: Diverse Client Selection via Submodular Maximization",
        core="selectors.client_selectors.divfl:DivFl",
    ),
    Selector(
        name="flad",
        about="clients with at least the mean loss, by lot if they are more than clients-per-round",
        paper="Doriguzzi-Corin and Siracusa, 2024: FLAD, Adaptive Federated Learning",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.by_loss:Flad",
        sends=("loss",),
    ),
)
