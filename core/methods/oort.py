"""Oort: clients by the loss of their samples and by their speed."""

from .selector import Selector

METHODS = (
    Selector(
        name="oort",
        about="clients with a high loss and fast replies, and some never chosen before",
        paper="Lai et al., 2021: Oort, Efficient FL via Guided Participant Selection",
        core="selectors.client_selectors.oort:Oort",
        hook="client_app.hooks.utility:StatisticalUtility",
        sends=("loss",),
    ),
)
