"""The data selector of a diagnosis: all samples, and reports on how the model fits them."""

from .base import Count, Method, NonNegative, Settings, key


class Diagnosis(Settings):
    """What a run with `data-selector = 'examined'` may spend; 0 means no limit."""

    section = "diagnose"
    bytes: Count = key(0, "bytes, both ways, that the run may move")
    seconds: NonNegative = key(0.0, "seconds after which no further round begins")


METHODS = (
    Method(
        axis="data-selector",
        name="examined",
        about="all samples; logs what forager diagnose needs",
        after="Chen and Vikalo, 2024: Heterogeneity-Guided Client Sampling (HiCS-FL)",
        settings=(Diagnosis,),
        layer="strategies.layers.examination:Examination.of_run",
        hook="client_app.hooks.examination:ModelFit",
        sends=("loss", "agreement of the model with its labels"),
        requires={"privacy": ("none",), "cohorts": ("none",)},
        norms_vary=50.0,  # one step in round 1, all of them later
    ),
)
