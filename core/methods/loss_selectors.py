"""Rules by the loss of clients: highest local loss, and power-of-choice."""

from .selector import Selector, Summary

METHODS = (
    Selector(
        name="local-loss",
        about="clients with the highest loss",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.by_loss:LocalLoss",
        sends=("loss",),
    ),
    Selector(
        name="power-of-choice",
        about="clients with the highest loss among twice as many, drawn at random",
        paper="Cho, Wang and Joshi, 2020: Client Selection in Federated Learning",
        settings=(Summary,),
        reads=("mode", "ask-at-most"),
        core="selectors.client_selectors.by_loss:PowerOfChoice",
        sends=("loss",),
    ),
)
