"""Settings of the methods that put clients into cohorts by their updates."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from .base import AtLeastOne, Count, Method, NonNegative, Positive, Settings, Share


class Cohort(Settings):
    """How cohorts are found, and when they change."""

    section = "cohort"
    parts: AtLeastOne = Field(default=4, description="most parts that a cohort is split into (K)")
    dimension: Annotated[int, Field(ge=5)] = Field(
        default=256, description="length of the sketches that updates are compared by"
    )
    first_clustering: Count = Field(
        default=5, description="rounds of a cohort before clusters are looked for"
    )
    first_split: Count = Field(default=20, description="rounds of a cohort before it may be split")
    last_split: Count = Field(
        default=0, description="rounds of a cohort after which it is not split; 0 means no limit"
    )
    split_rounds: AtLeastOne = Field(
        default=3, description="rounds in a row in which a split must be worth it"
    )
    split_exponent: NonNegative = Field(
        default=0.5,
        description="a split into K parts must reduce heterogeneity by K to this power: 0.5 as "
        "lemma 4.1 says of J, 1 for its square root",
    )
    min_participants: AtLeastOne = Field(
        default=10, description="participants per round that each part must keep"
    )
    exploration: Share = Field(
        default=0.3, description="share of clients that try another cohort at first"
    )
    exploration_decay: Share = Field(default=0.99, description="factor of that share per round")
    reward_rate: Share = Field(
        default=0.2, description="weight of a new reward against earlier ones"
    )
    lies_allowed: AtLeastOne = Field(
        default=3, description="requests that contradict the update before a client is barred"
    )
    ask_newcomers: Count = Field(
        default=0,
        description="rounds after a split before clients that no cohort knows are asked for the "
        "loss of each cohort's model; 0 means never, as in the paper",
    )
    number: AtLeastOne = Field(default=3, description="number of cohorts, for ifca and flexcfl")
    pretrain_steps: AtLeastOne = Field(
        default=50, description="local steps of the updates that flexcfl groups clients by"
    )
    distance: Positive = Field(
        default=0.5, description="cosine distance up to which fl-hc merges clusters"
    )
    mean_norm: Positive = Field(
        default=0.4,
        description="cfl splits when the mean update is shorter than this share of the longest",
    )


@dataclass(frozen=True, kw_only=True)
class CohortMethod(Method):
    """A way to put clients into cohorts.

    Parameters
    ----------
    rule : str
        Where the rule of the layer is: a ``CohortRule``, made from the run config.
    """

    axis: str = "cohorts"
    outer: str = "strategies.cohorts:Cohorts.of_run"
    rule: str = ""
