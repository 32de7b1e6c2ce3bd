"""CosAge: clients are ranked by dissimilarity; the oldest of each bin trains."""

from .base import Settings, Share, key
from .selector import Selector, Summary


class CosAgeSettings(Settings):
    """CosAge's cooldown."""

    section = "cosage"
    silent_ratio: Share = key(
        0.0, "share of clients that rest after their turn, the most recent first"
    )


METHODS = (
    Selector(
        name="cosage",
        about="from each bin of dissimilarity, the client that has waited longest",
        paper="FL-GSCCS: gradient-summary client selection with cosine similarity and age (CosAge)",
        presets={"cosage": {"uplink": "top-k-plain", "weighting": "uniform"}},
        settings=(CosAgeSettings, Summary),
        core="selectors.client_selectors.cosage:CosAge",
        hook="client_app.hooks.similarity:UpdateSimilarity",
        sends=("similarity",),
    ),
)
