"""Published rules by entropy, balance, correlation, diversity and need of clients."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from .base import AtLeastOne, Configured, Count, NonNegative, Positive, Settings, SomeShare
from .selector import Selector, Summary


class HicsSettings(Settings):
    """HiCS-FL's estimate of label entropies, and how much they count."""

    section = "hics"
    temperature: Positive = Field(
        default=0.5,
        description="temperature of its softmax, as a share of the median length of updates",
    )
    weight: NonNegative = Field(
        default=10.0, description="what entropies count beside angles in clustering (lambda)"
    )
    gamma: NonNegative = Field(
        default=4.0, description="how much clusters of high entropy are preferred at first"
    )
    rounds: Count = Field(
        default=0, description="rounds after which all clusters are drawn alike; 0 means all rounds"
    )


class FedCbsSettings(Settings):
    """Fed-CBS's exploration."""

    section = "fed-cbs"
    exploration: NonNegative = Field(
        default=10.0, description="how much clients are preferred that were rarely chosen (lambda)"
    )


class FedCorSettings(Settings):
    """FedCor's Gaussian process."""

    section = "fedcor"
    warm_up: AtLeastOne = Field(
        default=10, description="first rounds, at random, in which all clients say their loss"
    )
    every: AtLeastOne = Field(
        default=10, description="later, rounds after which they say it twice again"
    )
    dimension: AtLeastOne = Field(default=15, description="length of a client's embedding")
    annealing: SomeShare = Field(
        default=0.95, description="what a client counts less for every time it was chosen since"
    )


@dataclass(frozen=True, kw_only=True)
class HicsMethod(Selector):
    """HiCS-FL, whose preference fades in the course of the run."""

    def arguments(self, config: Configured) -> dict[str, Any]:
        """Return its settings, with the rounds of the run."""
        rounds = config[HicsSettings].rounds or max(1, config.num_server_rounds)
        return {**super().arguments(config), "rounds": rounds}


METHODS = (
    HicsMethod(
        name="hics",
        about="clients with many classes first, told from the output layer's updates",
        paper="Chen and Vikalo, 2024: Heterogeneity-Guided Client Sampling (HiCS-FL)",
        settings=(HicsSettings,),
        core="selectors.client_selectors.hics:Hics",
        needs=("classes", "linear head", "output bias"),
    ),
    Selector(
        name="fed-cbs",
        about="sets of clients whose pooled classes are balanced (is told label counts)",
        paper="Zhang et al., 2023: Fed-CBS, Client Sampling via Class-Imbalance Reduction",
        settings=(FedCbsSettings,),
        core="selectors.client_selectors.fed_cbs:FedCbs",
        sends=("labels",),
        needs=("classes",),
    ),
    Selector(
        name="fedcor",
        about="clients expected to lower all losses most, by a Gaussian process",
        paper="Tang et al., 2022: FedCor, Correlation-Based Active Client Selection",
        settings=(FedCorSettings, Summary),
        reads=("warm-up", "every", "dimension", "annealing", "mode", "ask-at-most"),
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
        about="clients with at least the mean loss, at most clients-per-round",
        paper="Doriguzzi-Corin and Siracusa, 2024: FLAD, Adaptive Federated Learning",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.by_loss:Flad",
        sends=("loss",),
    ),
)
