"""Losses that tolerate wrong labels: generalised and symmetric cross-entropy."""

from .base import Method, Settings, SomeShare, key


class GceSettings(Settings):
    """The generalised cross-entropy."""

    section = "gce"
    q: SomeShare = key(0.7, "near 0 it is cross-entropy, at 1 the mean absolute error")


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
        core="core.learning.objectives.bounded:Sce",
        needs=("classes",),
    ),
)
