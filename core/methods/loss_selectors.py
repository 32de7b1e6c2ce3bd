"""Rules by the loss of clients: highest local loss, and power-of-choice."""

from pydantic import Field

from .base import Count, Settings
from .selector import Selector, Summary


class PowerOfChoice(Settings):
    """Power-of-choice: clients are drawn by how much data they have, then asked."""

    section = "power-of-choice"
    candidates: Count = Field(
        default=0, description="clients asked for their loss; 0 asks twice as many as are chosen"
    )


METHODS = (
    Selector(
        name="local-loss",
        has_ages=False,
        about="clients with the highest loss",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.local_loss:LocalLoss",
        sends=("loss",),
    ),
    Selector(
        name="power-of-choice",
        has_ages=False,
        about="clients with the highest loss among some drawn at random",
        paper="Cho, Wang and Joshi, 2020: Client Selection in Federated Learning",
        settings=(PowerOfChoice, Summary),
        reads=("candidates", "mode", "ask-at-most"),
        core="selectors.client_selectors.power_of_choice:PowerOfChoice",
        sends=("loss",),
    ),
)
