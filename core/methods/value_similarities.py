"""Similarities that look at values: of the updates, or of the labels."""

from typing import Any

from .base import Method


def _similarity(name: str, about: str, core: str, **more: Any) -> Method:
    layer = f"strategies.similarities.client_similarity:{name.title()}.of_run"
    core = f"selectors.similarities.{core}"
    offers = ("a similarity",)
    return Method(
        axis="similarity", offers=offers, name=name, about=about, core=core, layer=layer, **more
    )


METHODS = (
    _similarity("cosine", "the cosine of two clients' updates", "gram:cosine_matrix"),
    _similarity("euclidean", "the distance of two clients' updates", "gram:euclidean_matrix"),
    _similarity(
        *("oracle", "how alike the label histograms are (uses true labels)"),
        "histograms:histogram_similarity",
        sends=("labels",),
        needs=("classes",),
    ),
)
