"""GCFL: clients train on a coreset that matches the gradients of the server's own samples."""

from .coreset import MATCHING_KEYS, CoresetMethod

METHODS = (
    CoresetMethod(
        name="gcfl",
        about="samples whose gradients match the server's, class by class",
        paper="Sivasubramanian et al., 2024: Gradient Coreset for Federated Learning",
        presets={"gcfl": {"weighting": "uniform"}},
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.matching_pursuit:matching_pursuit",
        rule="distance",
        target="server",
        needs=("linear head", "server data"),
    ),
)
