"""GCFL: samples whose gradients match those of the server's own samples."""

from .coreset import MATCHING_KEYS, CoresetMethod

PAPER = "Sivasubramanian et al., 2024: Gradient Coreset for Federated Learning"

METHODS = (
    CoresetMethod(
        name="gcfl",
        about="samples whose gradients match the server's, class by class",
        paper=PAPER,
        presets={"gcfl": {"weighting": "uniform"}},
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.matching_pursuit:matching_pursuit",
        rule="distance",
        target="server",
        needs=("linear head", "server data"),
    ),
)
