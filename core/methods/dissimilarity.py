"""Rules by dissimilarity alone, which CosAge is compared with."""

from .selector import Selector, Summary

_HOOK = "client_app.hooks.similarity:UpdateSimilarity"

METHODS = (
    Selector(
        name="dissimilarity",
        about="clients whose update differs most from the global one",
        settings=(Summary,),
        core="selectors.client_selectors.dissimilarity:MostDissimilar",
        hook=_HOOK,
        sends=("similarity",),
    ),
    Selector(
        name="dissimilarity-cooldown",
        about="the same, but the half that was chosen most recently rests",
        settings=(Summary,),
        core="selectors.client_selectors.dissimilarity:MostDissimilarAfterCooldown",
        hook=_HOOK,
        sends=("similarity",),
    ),
    Selector(
        name="dissimilarity-sampling",
        about="clients drawn in proportion to their dissimilarity (eq. 11)",
        settings=(Summary,),
        core="selectors.client_selectors.dissimilarity:DissimilaritySampling",
        hook=_HOOK,
        sends=("similarity",),
    ),
)
