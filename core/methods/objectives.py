"""What clients minimise: terms beside the loss, and losses that tolerate wrong labels."""

from functools import partial

from .base import Count, Method, NonNegative, Positive, Settings, SomeShare, key


class ProxSettings(Settings):
    """The proximal term of FedProx."""

    section = "prox"
    mu: NonNegative = key(0.01, "weight of the pull towards the global model")


class MoonSettings(Settings):
    """The contrastive term of MOON."""

    section = "moon"
    mu: NonNegative = key(1.0, "weight of the contrastive term")
    projection: Count = key(
        0,
        "width of two more layers in front of the model's head, whose output is compared (the"
        " paper has 256); 0 adds none and compares the head's input",
    )


class PerFedAvgSettings(Settings):
    """The inner step of Per-FedAvg."""

    section = "per-fedavg"
    inner_rate: Positive = key(
        0.01, "learning rate of the step before the gradient is taken (alpha)"
    )


class DittoSettings(Settings):
    """Ditto's personal model."""

    section = "ditto"
    pull: NonNegative = key(1.0, "how much it is pulled towards the global model (lambda)")


class GceSettings(Settings):
    """The generalised cross-entropy."""

    section = "gce"
    q: SomeShare = key(0.7, "near 0 it is cross-entropy, at 1 the mean absolute error")


_objective = partial(Method, axis="objective")

METHODS = (
    _objective(
        name="prox",
        about="stay near the global model",
        paper="Li et al., 2020: Federated Optimization in Heterogeneous Networks (FedProx)",
        presets={"fedprox": {}},
        settings=(ProxSettings,),
        core="core.learning.objectives.prox:Prox",
    ),
    _objective(
        name="moon",
        about="stay near the global model's representation",
        paper="Li, He and Song, 2021: Model-Contrastive Federated Learning (MOON)",
        presets={"moon": {}},
        settings=(MoonSettings,),
        core="core.learning.objectives.moon:Moon",
        hook="client_app.hooks.moon:PreviousModel",
        models_per_virtual_client=2.5,
        needs=("linear head",),
    ),
    _objective(
        name="scaffold",
        about="undo the drift towards a client's own optimum by control variates",
        paper="Karimireddy et al., 2020: SCAFFOLD",
        presets={"scaffold": {}},
        core="core.learning.objectives.scaffold:ScaffoldObjective",
        layer="strategies.layers.scaffold:ScaffoldLayer.of_run",
        hook="client_app.hooks.scaffold:ControlVariates",
        norms_vary=20.0,  # by how often a client has trained
        models_per_virtual_client=6.0,
        needs=("one model", "plain SGD"),
        sends=("control variate",),
        releases=("the mean of clients' control variates",),
    ),
    _objective(
        name="per-fedavg",
        about="a model that is good after one step on a client's own data",
        paper="Fallah, Mokhtari and Ozdaglar, 2020: Personalized Federated Learning (Per-FedAvg)",
        presets={"per-fedavg": {}},
        settings=(PerFedAvgSettings,),
        core="core.learning.objectives.per_fedavg:PerFedAvg",
    ),
    _objective(
        name="ditto",
        about="a personal model beside the global one, which clients evaluate; trains twice",
        paper="Li et al., 2021: Ditto, Fair and Robust FL Through Personalization",
        presets={"ditto": {}},
        settings=(DittoSettings,),
        core="core.learning.objectives.ditto:Ditto",
        hook="client_app.hooks.personal:PersonalModel",
        models_per_virtual_client=2.5,
    ),
    _objective(
        name="gce",
        about="generalised cross-entropy: a bounded loss, for wrong labels",
        paper="Zhang and Sabuncu, 2018: Generalized Cross Entropy Loss for Training Deep Neural "
        "Networks with Noisy Labels",
        settings=(GceSettings,),
        core="core.learning.objectives.bounded:Gce",
        needs=("classes",),
    ),
    _objective(
        name="sce",
        about="symmetric cross-entropy: adds the reverse one, for wrong labels",
        paper="Wang et al., 2019: Symmetric Cross Entropy for Robust Learning with Noisy Labels",
        core="core.learning.objectives.bounded:Sce",
        needs=("classes",),
    ),
)
