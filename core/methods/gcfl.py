"""GCFL: the gradients of the server's own samples say which samples clients train on."""

from dataclasses import replace

from .coreset import MATCHING_KEYS, TRUST_KEYS, CoresetMethod

_PAPER = "Sivasubramanian et al., 2024: Gradient Coreset for Federated Learning"
_NEEDS = ("linear head", "server data")

_GCFL = CoresetMethod(
    name="gcfl",
    about="drawn every round from the samples whose label the server's gradients confirm",
    paper=_PAPER,
    presets={"gcfl": {"weighting": "uniform"}},
    reads=TRUST_KEYS,
    core="selectors.data_selectors.trust:trusted",
    rule="agreement",
    target="server",
    needs=_NEEDS,
)
_AGREEMENT = replace(
    _GCFL,
    name="agreement",
    about="another name for gcfl",
    paper="",
    presets={"agreement": {"weighting": "uniform"}},
)

METHODS = (
    _GCFL,
    _AGREEMENT,
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
