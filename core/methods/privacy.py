"""Differential privacy: noise added by clients, or by a server that is trusted."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from .base import Configured, Method, NonNegative, Positive, Settings, key


class Dp(Settings):
    """How updates are clipped, and how much noise hides them."""

    section = "dp"
    clip: Positive = key(1.0, "norm to which updates are clipped")
    noise_multiplier: NonNegative = key(1.0, "standard deviation of the noise, divided by the clip")
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = key(
        1e-5, "the delta at which epsilon is reported"
    )
    budget: NonNegative = key(
        0.0,
        "epsilon that no client may exceed: one that would exceed it is not asked again, and the "
        "run ends when no client is left; 0 means no limit",
    )


@dataclass(frozen=True, kw_only=True)
class NoNoise(Method):
    """Nobody adds noise."""

    def needs_in(self, config: Configured) -> tuple[str, ...]:
        """Return that a budget needs noise, if there is one."""
        return ("noise for a budget",) if config[Dp].budget else ()


METHODS = (
    NoNoise(axis="privacy", name="none", about="no noise", default=True),
    Method(
        axis="privacy",
        name="local-dp",
        about="clients add noise to their updates",
        settings=(Dp,),
        outer="strategies.layers.privacy:PrivacyLedger.of_run",
        hook="client_app.hooks.privacy:LocalNoise",
        needs=("nothing sent but a model",),
    ),
    Method(
        axis="privacy",
        name="central-dp",
        about="the server clips updates and adds noise to their mean",
        settings=(Dp,),
        layer="strategies.layers.privacy:CentralNoise.of_run",
        outer="strategies.layers.privacy:PrivacyLedger.of_run",
        needs=("mean aggregator", "nothing released but models"),
    ),
)
