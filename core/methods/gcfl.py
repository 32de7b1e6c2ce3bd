"""GCFL: samples whose gradients match those of the server's own samples."""

from .coreset import MATCHING_KEYS, PAPER, CoresetMethod

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
        first=0,  # line 5 of Algorithm 1: t mod K = 0, from t = 0 on
        equal=True,  # section 5.2: b/|Y|
        needs=("linear head", "server data", "classes"),
    ),
)
