"""Other coresets, which GCFL is compared with, and ours after it."""

from .base import Method
from .coreset import MATCHING_KEYS, TRUST_KEYS, CoresetMethod
from .gcfl import PAPER

_HEAD = ("linear head",)

METHODS = (
    CoresetMethod(
        name="gradmatch",
        about="samples whose gradients match the client's own mean gradient",
        paper="Killamsetty et al., 2021: GRAD-MATCH",
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.matching_pursuit:matching_pursuit",
        rule="projection",
        target="own",
        needs=_HEAD,
    ),
    CoresetMethod(
        name="nearest",
        about="samples whose gradients are nearest to the server's",
        after=PAPER,
        reads=MATCHING_KEYS,
        core="selectors.data_selectors.plain:nearest",
        rule="nearest",
        target="server",
        needs=(*_HEAD, "server data"),
    ),
    CoresetMethod(
        name="crust",
        about="medoids of the gradients, on which a network does not memorise noise",
        paper="Mirzasoleiman, Cao and Leskovec, 2020: CRUST",
        reads=("budget", "every", "first-round", "per-class", "class-budgets", "use-weights"),
        core="selectors.data_selectors.medoids:crust",
        rule="crust",
        needs=_HEAD,
    ),
    CoresetMethod(
        name="facility-location",
        about="samples whose inputs represent all others, chosen once",
        reads=("budget", "per-class", "class-budgets", "use-weights"),
        core="selectors.data_selectors.medoids:facility_location",
        rule="facility-location",
        looks_at="inputs",
    ),
    CoresetMethod(
        name="random",
        about="samples drawn uniformly",
        reads=("budget", "every"),
        core="selectors.data_selectors.plain:uniform",
        rule="random",
        looks_at="nothing",
    ),
    Method(
        axis="data-selector",
        name="skyline",
        about="the clean samples (uses true labels)",
        layer="strategies.layers.coresets:Coresets.of_run",
        hook="client_app.hooks.skyline:CleanOnly",
    ),
    CoresetMethod(
        name="trusted",
        about="drawn every round from the samples whose label the server's gradients confirm",
        after=PAPER,
        presets={"trusted": {"weighting": "uniform"}},
        reads=TRUST_KEYS,
        core="selectors.data_selectors.trust:trusted",
        rule="trusted",
        target="server",
        needs=("linear head", "server data", "classes"),
    ),
)
