"""Similarities that look at values: of the updates, or of the labels."""

from .base import Method

METHODS = (
    Method(
        axis="similarity",
        offers=("a similarity",),
        name="cosine",
        about="the cosine of two clients' updates",
        core="selectors.similarities.gram:cosine_matrix",
        layer="strategies.similarities.client_similarity:Cosine.of_run",
    ),
    Method(
        axis="similarity",
        offers=("a similarity",),
        name="euclidean",
        about="the distance of two clients' updates",
        core="selectors.similarities.gram:euclidean_matrix",
        layer="strategies.similarities.client_similarity:Euclidean.of_run",
    ),
    Method(
        axis="similarity",
        offers=("a similarity",),
        name="oracle",
        about="how alike the label histograms are (uses true labels)",
        core="selectors.similarities.histograms:histogram_similarity",
        layer="strategies.similarities.client_similarity:Oracle.of_run",
        sends=("labels",),
        needs=("classes",),
    ),
)
