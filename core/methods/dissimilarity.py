"""Rules by dissimilarity alone, which CosAge is compared with."""

from .selector import Selector, Summary


def _rule(name: str, about: str, core: str) -> Selector:
    return Selector(
        name=name,
        about=about,
        settings=(Summary,),
        core=f"selectors.client_selectors.dissimilarity:{core}",
        hook="client_app.hooks.similarity:UpdateSimilarity",
        sends=("similarity",),
    )


METHODS = (
    _rule(
        "dissimilarity", "clients whose update differs most from the global one", "MostDissimilar"
    ),
    _rule(
        "dissimilarity-cooldown",
        "the same, but the half that was chosen most recently rests",
        "MostDissimilarAfterCooldown",
    ),
    _rule(
        "dissimilarity-sampling",
        "clients drawn in proportion to their dissimilarity (eq. 11)",
        "DissimilaritySampling",
    ),
)
