"""CLoVE: cohorts of clients with like losses on all models."""

from .cohort import CohortMethod, CohortSettings

METHODS = (
    CohortMethod(
        name="clove",
        about="a given number of models, for clusters of clients by their losses on all of them",
        paper="Bhatia et al., 2025: CLoVE, Clustering of Loss Vector Embeddings",
        settings=(CohortSettings,),
        reads=("number",),
        core="selectors.cohorts.clove:Clove",
        rule="strategies.cohorts.clove:CloveRule",
        sends=("loss",),
        releases=("who is in which cohort",),
        requires={"similarity": ("none",)},
    ),
)
