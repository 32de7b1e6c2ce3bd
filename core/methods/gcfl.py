"""GCFL: the gradients of the server's own samples say which samples clients train on."""

from .coreset import MATCHING_KEYS, CoresetMethod

_PAPER = "Sivasubramanian et al., 2024: Gradient Coreset for Federated Learning"
_NEEDS = ("linear head", "server data")

METHODS = (
    CoresetMethod(
        name="gcfl",
        about="drawn every round from the samples whose label the server's gradients confirm",
        paper=_PAPER,
        presets={"gcfl": {"weighting": "uniform"}},
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.trust:trusted",
        rule="agreement",
        residual="plain-mean",
        target="server",
        needs=_NEEDS,
    ),
    CoresetMethod(
        name="gcfl-paper",
        about="samples whose gradients match the server's, class by class, as the paper has it",
        paper=_PAPER,
        presets={"gcfl-paper": {"weighting": "uniform"}},
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.matching_pursuit:matching_pursuit",
        rule="distance",
        target="server",
        needs=_NEEDS,
    ),
)
