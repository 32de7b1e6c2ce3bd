"""Auxo: cohorts of similar clients, found while they train and split when that pays."""

from pydantic import Field

from .base import AtLeastOne, Count, NonNegative, Settings, Share
from .cohort import CohortMethod

_PAPER = "Liu et al., 2023: Auxo, Efficient Federated Learning via Scalable Client Clustering"
_SIMILARITIES = ("none", "index-overlap", "index-overlap-paper", "signed-overlap")


class AuxoSettings(Settings):
    """When auxo splits a cohort, and whom it asks."""

    section = "auxo"
    parts: AtLeastOne = Field(default=8, description="most parts that a cohort is split into (K)")
    first_split: Count = Field(default=1, description="rounds of a cohort before it may be split")
    split_rounds: AtLeastOne = Field(
        default=2, description="rounds in a row in which groups must be seen"
    )
    within_groups: Share = Field(
        default=0.15,
        description="largest share of the variance between clients, along its main directions, "
        "that may be within groups",
    )
    min_participants: Count = Field(
        default=0,
        description="participants per round that each part must keep; 0 means a tenth of the run's",
    )
    ask_newcomers: Count = Field(
        default=1,
        description="rounds after a split before clients that no cohort knows, or that do not fit "
        "theirs, are asked for the loss of each cohort's model; 0 means never: they try cohorts; "
        "nobody is asked with local-dp",
    )

    def least_part(self, participants: int) -> int:
        """Return how many of a round's participants each part must keep.

        >>> AuxoSettings().least_part(30), AuxoSettings(min_participants=2).least_part(30)
        (3, 2)
        """
        return self.min_participants or max(1, participants // 10)


class AuxoPaperSettings(Settings):
    """When auxo-paper splits a cohort, and how clients explore; the paper has large runs."""

    section = "auxo-paper"
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
    min_participants: AtLeastOne = Field(
        default=10, description="participants per round that each part must keep"
    )
    exploration: Share = Field(
        default=0.3, description="share of clients that try another cohort at first"
    )
    lies_allowed: AtLeastOne = Field(
        default=3, description="requests that contradict the update before a client is barred"
    )


METHODS = (
    CohortMethod(
        name="auxo",
        about="cohorts are split where updates show groups; clients without one are asked",
        paper=_PAPER,
        presets={"auxo": {}},
        settings=(AuxoSettings,),
        core="selectors.cohorts.auxo:Auxo",
        rule="strategies.cohorts.auxo:AuxoRule",
        releases=("who is in which cohort",),
        requires={"similarity": _SIMILARITIES},
    ),
    CohortMethod(
        name="auxo-paper",
        about="clients explore a growing tree of cohorts and stay where they fit",
        paper=_PAPER,
        presets={"auxo-paper": {"aggregator": "fedyogi"}},
        settings=(AuxoPaperSettings,),
        core="selectors.cohorts.auxo_paper:AuxoPaper",
        rule="strategies.cohorts.auxo_paper:AuxoPaperRule",
        hook="client_app.hooks.auxo:AffinityRecords",
        releases=("rewards computed from other clients' updates",),
        requires={"similarity": _SIMILARITIES},
    ),
)
