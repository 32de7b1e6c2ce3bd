"""Coresets: their settings, the declaration of a rule, and all rules but GCFL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .base import AtLeastOne, Configured, Method, NonNegative, Positive, Settings, key

PAPER = "Sivasubramanian et al., 2024: Gradient Coreset for Federated Learning"
GUIDANCE_KEYS = ("clip", "noise-multiplier")  # of those that the server sends gradients to
TRUST_KEYS = ("budget", "every", "first-round", "target", *GUIDANCE_KEYS)
MATCHING_KEYS = (
    *("budget", "every", "first-round", "target", "per-class", "class-budgets", "use-weights"),
    *("residual", "ridge", *GUIDANCE_KEYS),
)

_COHORTS = (
    *("auxo", "split-test", "conflict-test", "ifca", "clove", "cfl", "flexcfl", "fl-hc"),
    "similarity",
)
_NOT_THEIRS = (
    "the server's samples are matched at each cohort's model, but mean something else than the "
    "data of a cohort that differs; use coreset.target = 'own'"
)


class CoresetSettings(Settings):
    """Which few samples a client trains on, and how they are chosen."""

    section = "coreset"
    budget: Positive = key(
        0.1, "samples that a client trains on: a share of its data up to 1, a count above"
    )
    every: AtLeastOne = key(10, "rounds after which a coreset is chosen again")
    first_round: Annotated[int, Field(ge=-1)] = key(
        -1,
        "rounds on a random subset before the first choice; 0 chooses at once; -1 means 0 for "
        "gcfl and 1 for all others",
    )
    residual: Literal["mean", "total", "plain-mean", "printed"] = key(
        "mean",
        'what the coreset of gcfl and gradmatch matches: the "mean" gradient (the paper\'s text) '
        'or the "total" (mean times budget) by a weighted sum, the mean by the "plain-mean" of '
        'its samples, or as "printed" in Alg. 2',
    )
    target: Literal["auto", "server", "own"] = key(
        "auto",
        'the gradient to match: the "server"\'s, on its validation set, or the client\'s "own";'
        ' "auto" is the method\'s default',
    )
    per_class: bool = key(
        True,
        "choose within each label by the gradient of its own neuron, or among all samples by "
        "the whole head",
    )
    class_budgets: Literal["auto", "proportional", "equal"] = key(
        "auto",
        'parts of the budget that labels get: "proportional" to their samples, or "equal" '
        "(b/|Y|; auto, with gcfl)",
    )
    ridge: NonNegative = key(0.5, "regularisation of the weights (lambda of eq. 5)")
    use_weights: bool = key(
        False, "weight samples in training as the match does; else all count the same"
    )
    clip: Positive = key(
        1.0,
        "norm to which each of the server's gradients is clipped if noise is added to their means",
    )
    noise_multiplier: NonNegative = key(
        0.0,
        "noise that hides the server's samples: its standard deviation on a sum of gradients,"
        " divided by the clip; 0 sends plain means",
    )

    def problems(self) -> list[str]:
        """Return whether a number of samples is not whole."""
        if self.budget > 1 and self.budget != int(self.budget):
            return [f"coreset.budget = {self.budget}: above 1 it is a whole number of samples"]
        return []


@dataclass(frozen=True, kw_only=True)
class CoresetMethod(Method):
    """A way to choose a coreset."""

    axis: str = "data-selector"
    settings: tuple[type[Settings], ...] = (CoresetSettings,)
    layer: str = "strategies.layers.coresets:Coresets.of_run"
    hook: str = "client_app.hooks.coresets:ChosenCoreset"
    rule: str = ""  # as ``selectors.data_selectors.coreset`` calls it, or "trusted"
    # Whose mean gradients samples are compared with, and by what samples are compared
    target: Literal["server", "own", "none"] = "none"
    looks_at: Literal["gradients", "inputs", "nothing"] = "gradients"
    first: int = 1  # rounds before the first choice: an untrained model's gradients say little
    equal: bool = False  # whether labels get equal parts of the budget

    def needs_in(self, config: Configured) -> tuple[str, ...]:
        """Return what it needs: samples on the server if it matches their gradients."""
        data = ("server data",) if self.target_of(config[CoresetSettings]) == "server" else ()
        return (*(need for need in self.needs if need != "server data"), *data)

    def suffers_in(self, config: Configured) -> Mapping[tuple[str, str], str]:
        """Return the cohorts, whose data one set of samples on the server does not represent."""
        if self.target_of(config[CoresetSettings]) != "server":
            return {}
        return {("cohorts", name): _NOT_THEIRS for name in _COHORTS}

    def per_class_of(self, settings: CoresetSettings) -> bool:
        """Return whether samples are compared by the neuron of their own label in a run."""
        return settings.per_class or "per-class" not in self.reads

    def first_round_of(self, settings: CoresetSettings) -> int:
        """Return how many rounds pass before the first choice of a run."""
        return self.first if settings.first_round < 0 else settings.first_round

    def equal_of(self, settings: CoresetSettings) -> bool:
        """Return whether labels get equal parts of the budget in a run."""
        return settings.class_budgets == "equal" or (
            settings.class_budgets == "auto" and self.equal
        )

    def target_of(self, settings: CoresetSettings) -> str:
        """Return whose gradients are matched in a run."""
        own = settings.target == "auto" or "target" not in self.reads
        return self.target if own else settings.target


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
        core="selectors.data_selectors.crust:crust",
        rule="crust",
        needs=_HEAD,
    ),
    CoresetMethod(
        name="facility-location",
        about="samples whose inputs represent all others, chosen once",
        reads=("budget", "per-class", "class-budgets", "use-weights"),
        core="selectors.data_selectors.facility_location:facility_location",
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
