"""Cohorts and personal models by how similar clients are (IOS, section 5)."""

from .base import Method
from .cohort import CohortMethod
from .ios import Ios

METHODS = (
    CohortMethod(
        name="similarity",
        about="one model per cluster of similar clients (affinity propagation)",
        settings=(Ios,),
        reads=("first-round", "every", "signatures"),
        core="selectors.cohorts.similarity_clusters:similarity_clusters",
        rule="strategies.cohorts.similarity:SimilarityRule",
        sends=("update",),
        releases=("who is in which cohort",),
        models_per_reply=1.0,
        models_per_virtual_client=3.6,
        needs=("a similarity",),
    ),
    Method(
        axis="cohorts",
        name="neighbours",
        about="one model per client, mixed from those of the most similar clients",
        settings=(Ios,),
        reads=("first-round", "every", "neighbours", "signatures"),
        outer="strategies.layers.neighbours:Neighbours.of_run",
        releases=("mixtures of clients' models",),
        models_per_reply=4.4,
        needs=("a similarity",),
    ),
)
