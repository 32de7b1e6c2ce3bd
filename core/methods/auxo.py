"""Auxo: clients explore a tree of cohorts, which is split while they train."""

from typing import Literal

from pydantic import Field

from .base import AtLeastOne, Count, NonNegative, Settings, Share
from .cohort import CohortMethod

PAPER = "Liu et al., 2023: Auxo, Efficient Federated Learning via Scalable Client Clustering"
SIMILARITIES = ("none", "index-overlap", "centred-overlap", "signed-overlap")


class AuxoSettings(Settings):
    """When auxo splits a cohort, and how clients explore; the paper has large runs."""

    section = "auxo"
    parts: AtLeastOne = Field(default=4, description="most parts that a cohort is split into (K)")
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
    alpha: NonNegative = Field(
        default=1.0,
        description="each part must keep more participants per round than this times the root of "
        "those before, divided by their heterogeneity (lemma 4.1)",
    )
    min_participants: AtLeastOne = Field(
        default=1, description="participants per round that each part must keep in any case"
    )
    records_lost: Share = Field(
        default=0.0,
        description="share of messages before which a simulated client loses its records",
    )
    exploration: Share = Field(
        default=0.3, description="share of clients that try another cohort at first"
    )
    explore_reward: Literal["exploring", "every-round"] = Field(
        default="exploring",
        description="when a client's reward is also added, divided by distance, to cohorts that it "
        "never tried: in its first round with a cohort, or in every round (line 25 to the letter)",
    )
    lies_allowed: AtLeastOne = Field(
        default=3, description="requests that contradict the update before a client is barred"
    )


METHODS = (
    CohortMethod(
        name="auxo",
        about="clients explore a growing tree of cohorts and stay where they fit",
        paper=PAPER,
        presets={"auxo": {"aggregator": "fedyogi"}},
        settings=(AuxoSettings,),
        core="selectors.cohorts.auxo:Auxo",
        rule="strategies.cohorts.auxo:AuxoRule",
        hook="client_app.hooks.auxo:AffinityRecords",
        releases=("rewards computed from other clients' updates",),
        requires={"similarity": SIMILARITIES},
    ),
)
