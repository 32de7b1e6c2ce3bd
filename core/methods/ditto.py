"""Ditto: a personal model beside the global one."""

from .base import Method, NonNegative, Settings, key


class DittoSettings(Settings):
    """Ditto's personal model."""

    section = "ditto"
    pull: NonNegative = key(1.0, "how much it is pulled towards the global model (lambda)")


METHODS = (
    Method(
        axis="objective",
        name="ditto",
        about="a personal model beside the global one, which clients evaluate; trains twice",
        paper="Li et al., 2021: Ditto, Fair and Robust FL Through Personalization",
        presets={"ditto": {}},
        settings=(DittoSettings,),
        core="core.learning.objectives.ditto:Ditto",
        hook="client_app.hooks.ditto:PersonalModel",
        models_per_virtual_client=2.5,
    ),
)
