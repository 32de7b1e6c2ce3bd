"""Oort: clients by the loss of their samples and by their speed."""

from typing import Any

from pydantic import Field

from .base import Count, NonNegative, Settings, Share
from .selector import Selector


class Oort(Settings):
    """Oort: clients send one number, their samples times the root of the mean squared loss."""

    section = "oort"
    exploration: Share = Field(
        default=0.9, description="initial share of clients never chosen before"
    )
    least_exploration: Share = Field(default=0.2, description="share that exploration decays to")
    slow_penalty: NonNegative = Field(
        default=2.0, description="exponent of the penalty for clients slower than preferred"
    )
    blacklist_after: Count = Field(
        default=10, description="times chosen after which a client is blacklisted; 0 means never"
    )

    def for_core(self) -> dict[str, Any]:
        """Return the settings by the names of the paper."""
        own = self.model_dump()
        return {
            "floor": own.pop("least_exploration"),
            "alpha": own.pop("slow_penalty"),
            **own,
        }


METHODS = (
    Selector(
        name="oort",
        about="clients with a high loss and fast replies, and some never chosen before",
        paper="Lai et al., 2021: Oort, Efficient FL via Guided Participant Selection",
        settings=(Oort,),
        core="selectors.client_selectors.oort:Oort",
        hook="client_app.hooks.utility:StatisticalUtility",
        sends=("loss",),
    ),
)
