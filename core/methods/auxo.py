"""Auxo: clients explore a tree of cohorts, which is split while they train."""

from typing import Literal

from .base import AtLeastOne, Count, NonNegative, Settings, Share, key
from .cohort import CohortMethod

PAPER = "Liu et al., 2023: Auxo, Efficient Federated Learning via Scalable Client Clustering"
SIMILARITIES = ("none", "index-overlap", "centred-overlap", "signed-overlap")


class AuxoSettings(Settings):
    """When auxo splits a cohort, and how clients explore; defaults suit large runs."""

    section = "auxo"
    parts: AtLeastOne = key(4, "most parts that a cohort is split into (K)")
    first_clustering: Count = key(5, "rounds of a cohort before clusters are looked for")
    first_split: Count = key(20, "rounds of a cohort before it may be split")
    alpha: NonNegative = key(
        1.0,
        "each part must keep more participants per round than this times the root of those "
        "before, divided by their heterogeneity (lemma 4.1)",
    )
    min_participants: AtLeastOne = key(
        1, "participants per round that each part must keep in any case"
    )
    records_lost: Share = key(
        0.0, "share of messages before which a simulated client loses its records"
    )
    explore_reward: Literal["exploring", "every-round"] = key(
        "exploring",
        "when a client's reward is also added, divided by distance, to cohorts that it never "
        "tried: in its first round with a cohort, or in every round (line 25 as printed)",
    )
    lies_allowed: AtLeastOne = key(
        3, "requests that contradict the update before a client is barred"
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
