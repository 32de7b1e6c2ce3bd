"""Trusted: the gradients of the server's samples say whose labels to trust (after GCFL)."""

from .coreset import TRUST_KEYS, CoresetMethod
from .gcfl import PAPER

METHODS = (
    CoresetMethod(
        name="trusted",
        about="drawn every round from the samples whose label the server's gradients confirm",
        after=PAPER,
        presets={"trusted": {"weighting": "uniform"}},
        reads=TRUST_KEYS,
        core="selectors.data_selectors.trust:trusted",
        rule="trusted",
        target="server",
        needs=("linear head", "server data", "classes"),
    ),
)
