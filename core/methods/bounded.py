"""Losses that tolerate wrong labels: generalised and symmetric cross-entropy."""

from pydantic import Field

from .base import Method, NonNegative, Positive, Settings, SomeShare


class GceSettings(Settings):
    """The generalised cross-entropy."""

    section = "gce"
    q: SomeShare = Field(
        default=0.7, description="near 0 it is cross-entropy, at 1 the mean absolute error"
    )


class SceSettings(Settings):
    """The symmetric cross-entropy."""

    section = "sce"
    alpha: NonNegative = Field(default=0.1, description="weight of the cross-entropy")
    beta: Positive = Field(default=1.0, description="weight of the reverse cross-entropy")
    a: Positive = Field(default=4.0, description="what the logarithm of 0 counts as, negated (-A)")


METHODS = (
    Method(
        axis="objective",
        name="gce",
        about="generalised cross-entropy: a bounded loss, for wrong labels",
        paper="Zhang and Sabuncu, 2018: Generalized Cross Entropy Loss for Training Deep Neural "
        "Networks with Noisy Labels",
        settings=(GceSettings,),
        core="core.learning.objectives.bounded:Gce",
        needs=("classes",),
    ),
    Method(
        axis="objective",
        name="sce",
        about="symmetric cross-entropy: adds the reverse one, for wrong labels",
        paper="Wang et al., 2019: Symmetric Cross Entropy for Robust Learning with Noisy Labels",
        settings=(SceSettings,),
        core="core.learning.objectives.bounded:Sce",
        needs=("classes",),
    ),
)
