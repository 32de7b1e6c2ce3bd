"""Rules by dissimilarity alone, which CosAge is compared with."""

from pydantic import Field

from .base import Settings, Share
from .selector import Selector, Summary

_HOOK = "client_app.hooks.similarity:UpdateSimilarity"


class DissimilarityCooldown(Settings):
    """The rest after a turn in ``dissimilarity-cooldown``."""

    section = "dissimilarity-cooldown"
    silent_ratio: Share = Field(
        default=0.5, description="share of clients that rest after their turn"
    )


METHODS = (
    Selector(
        name="dissimilarity",
        has_ages=False,
        about="clients whose update differs most from the global one",
        settings=(Summary,),
        core="selectors.client_selectors.dissimilarity:MostDissimilar",
        hook=_HOOK,
        sends=("similarity",),
    ),
    Selector(
        name="dissimilarity-cooldown",
        has_ages=False,
        about="the same, but clients chosen recently rest",
        settings=(DissimilarityCooldown, Summary),
        core="selectors.client_selectors.dissimilarity:MostDissimilarAfterCooldown",
        hook=_HOOK,
        sends=("similarity",),
    ),
    Selector(
        name="dissimilarity-sampling",
        has_ages=False,
        about="clients drawn in proportion to their dissimilarity (eq. 11)",
        settings=(Summary,),
        core="selectors.client_selectors.dissimilarity:DissimilaritySampling",
        hook=_HOOK,
        sends=("similarity",),
    ),
)
