"""Auxo: cohorts of similar clients, found while they train and split when that pays."""

from .cohort import Cohort, CohortMethod

_PAPER = "Liu et al., 2023: Auxo, Efficient Federated Learning via Scalable Client Clustering"
_SIMILARITIES = ("none", "index-overlap", "index-overlap-paper", "signed-overlap")

METHODS = (
    CohortMethod(
        name="auxo",
        about="cohorts are split where updates show groups; clients without one are asked",
        paper=_PAPER,
        presets={"auxo": {}},
        settings=(Cohort,),
        reads=(
            *("parts", "dimension", "first-split", "last-split", "split-rounds"),
            *("within-groups", "min-participants", "reward-rate", "ask-newcomers"),
        ),
        core="selectors.cohorts.auxo:Auxo",
        rule="strategies.cohorts.auxo:AuxoRule",
        sends_with={"cohort.ask-newcomers": "loss"},
        releases=("who is in which cohort",),
        requires={"similarity": _SIMILARITIES},
    ),
    CohortMethod(
        name="auxo-paper",
        about="clients explore a growing tree of cohorts and stay where they fit",
        paper=_PAPER,
        presets={"auxo-paper": {"aggregator": "fedyogi"}},
        settings=(Cohort,),
        reads=(
            *("parts", "dimension", "first-clustering", "first-split", "last-split"),
            *("split-rounds", "split-exponent", "min-participants", "exploration"),
            *("exploration-decay", "reward-rate", "lies-allowed"),
        ),
        core="selectors.cohorts.auxo_paper:AuxoPaper",
        rule="strategies.cohorts.auxo_paper:AuxoPaperRule",
        hook="client_app.hooks.auxo:AffinityRecords",
        releases=("rewards computed from other clients' updates",),
        requires={"similarity": _SIMILARITIES},
    ),
)
