"""Auxo: cohorts of similar clients, found while they train and split when that pays."""

from .cohort import Cohort, CohortMethod

METHODS = (
    CohortMethod(
        name="auxo",
        about="clients explore a growing tree of cohorts and stay where they fit",
        paper="Liu et al., 2023: Auxo, Efficient Federated Learning via Scalable Client Clustering",
        presets={"auxo": {"aggregator": "fedyogi"}},
        settings=(Cohort,),
        reads=(
            *("parts", "dimension", "first-clustering", "first-split", "last-split"),
            *("split-rounds", "split-exponent", "min-participants", "exploration"),
            *("exploration-decay", "reward-rate", "lies-allowed", "ask-newcomers"),
        ),
        core="selectors.cohorts.auxo:Auxo",
        rule="strategies.cohort_rules.auxo:AuxoRule",
        hook="client_app.hooks.auxo:AffinityRecords",
        sends_with={"cohort.ask-newcomers": "loss"},
        releases=("rewards computed from other clients' updates",),
        requires={"similarity": ("none", "index-overlap", "index-overlap-paper", "signed-overlap")},
    ),
)
