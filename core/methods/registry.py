"""Every choice a run config can name, and where its code lives.

To add a method, put its ``module:attribute`` here. Modules are imported only when a run asks for
them, so a device that trains plain FedAvg never loads anything else.
"""

from collections.abc import Mapping
from typing import Any

from .base import load

BUILT_IN = "built-in"  # nothing to load: the value means "without"

# Rules for what a client keeps of a stream
STREAM_RULES: dict[str, str] = {
    "reservoir": "selectors.stream_selectors.reservoir:Reservoir",
    "fifo": "selectors.stream_selectors.fifo:Fifo",
    "high-loss": "selectors.stream_selectors.high_loss:HighLoss",
    "gradient-norm": "selectors.stream_selectors.gradient_norm:GradientNorm",
    "fedbalancer": "selectors.stream_selectors.fedbalancer:FedBalancer",
    "sld": "selectors.stream_selectors.sld:Sld",
    "ode": "selectors.stream_selectors.ode_selector:OdeSelector",
    "unlimited": "selectors.stream_selectors.unlimited:Unlimited",
}

AXES: dict[str, dict[str, str]] = {
    "client-selector": {
        "random": "selectors.client_selectors.uniform:Uniform",
        "all": "selectors.client_selectors.everyone:Everyone",
        "round-robin": "selectors.client_selectors.round_robin:RoundRobin",
        "aoi": "selectors.client_selectors.age:OldestFirst",
        "dissimilarity": "selectors.client_selectors.dissimilarity:MostDissimilar",
        "dissimilarity-cooldown": "selectors.client_selectors.dissimilarity:MostDissimilarAfterCooldown",  # noqa: E501
        "dissimilarity-sampling": "selectors.client_selectors.dissimilarity:DissimilaritySampling",
        "cosage": "selectors.client_selectors.cosage:CosAge",
        "power-of-choice": "selectors.client_selectors.power_of_choice:PowerOfChoice",
        "local-loss": "selectors.client_selectors.local_loss:LocalLoss",
        "oort": "selectors.client_selectors.oort:Oort",
        "cluster-oracle": "selectors.client_selectors.cluster_oracle:ClusterOracle",
        "support-diversity": "selectors.client_selectors.support_diversity:SupportDiversity",
    },
    "data-selector": {
        "full": BUILT_IN,
        "random": "client_app.hooks.coresets:ChosenCoreset",
        "facility-location": "client_app.hooks.coresets:ChosenCoreset",
        "crust": "client_app.hooks.coresets:ChosenCoreset",
        "gradmatch": "client_app.hooks.coresets:ChosenCoreset",
        "gcfl": "client_app.hooks.coresets:ChosenCoreset",
        "nearest": "client_app.hooks.coresets:ChosenCoreset",
        "agreement": "client_app.hooks.coresets:ChosenCoreset",
        "skyline": "client_app.hooks.skyline:CleanOnly",
        **dict.fromkeys(STREAM_RULES, "client_app.hooks.streams:StreamedData"),
    },
    "cohorts": {
        "none": BUILT_IN,
        "auxo": "strategies.cohort_rules.auxo:AuxoRule",
        "ifca": "strategies.cohort_rules.ifca:IfcaRule",
        "cfl": "strategies.cohort_rules.cfl:CflRule",
        "flexcfl": "strategies.cohort_rules.grouped:FlexCflRule",
        "fl-hc": "strategies.cohort_rules.grouped:FlHcRule",
        "similarity": "strategies.cohort_rules.similarity:SimilarityRule",
        "neighbours": "strategies.neighbours:Neighbours",
    },
    "similarity": {
        "none": BUILT_IN,
        "index-overlap": "client_app.hooks.supports:ImportantIndices",
        "cosine": BUILT_IN,
        "euclidean": BUILT_IN,
        "oracle": BUILT_IN,
    },
    "aggregator": {
        "fedavg": "strategies.aggregators:fedavg",
        "fedavgm": "strategies.aggregators:fedavgm",
        "fedadam": "strategies.aggregators:fedadam",
        "fedyogi": "strategies.aggregators:fedyogi",
        "fedadagrad": "strategies.aggregators:fedadagrad",
        "qfedavg": "strategies.aggregators:qfedavg",
        "median": "strategies.aggregators:median",
        "trimmed-mean": "strategies.aggregators:trimmed_mean",
        "krum": "strategies.aggregators:krum",
        "multi-krum": "strategies.aggregators:multi_krum",
        "bulyan": "strategies.aggregators:bulyan",
    },
    "objective": {
        "sgd": "core.learning.objectives.plain:Plain",
        "prox": "core.learning.objectives.prox:Prox",
        "moon": "core.learning.objectives.moon:Moon",
        "scaffold": "core.learning.objectives.scaffold:Scaffold",
    },
    "uplink": {
        "dense": BUILT_IN,
        "top-k": "strategies.sparse_uplink:SparseUplink",
    },
    "weighting": {"examples": BUILT_IN, "uniform": BUILT_IN},
    "privacy": {
        "none": BUILT_IN,
        "local-dp": "client_app.hooks.privacy:LocalNoise",
        "central-dp": "strategies.privacy:CentralNoise",
    },
}


# What of a method runs on the client, beside its objective. Parts act in this order.
CLIENT_HOOKS: dict[str, dict[str, str]] = {
    "privacy": {"local-dp": AXES["privacy"]["local-dp"]},  # first: others see what is sent
    "data-selector": {name: at for name, at in AXES["data-selector"].items() if ":" in at},
    "objective": {
        "moon": "client_app.hooks.moon:PreviousModel",
        "scaffold": "client_app.hooks.scaffold:ControlVariates",
    },
    "cohorts": {"auxo": "client_app.hooks.auxo:AffinityRecords"},
    "similarity": {"index-overlap": AXES["similarity"]["index-overlap"]},
    "client-selector": {"support-diversity": "client_app.hooks.supports:SignedIndices"},
}


def client_hooks(axes: Mapping[str, str]) -> list[Any]:
    """Import and return the client parts that these values of the axes need.

    >>> [part.__name__ for part in client_hooks({"cohorts": "auxo", "objective": "sgd"})]
    ['AffinityRecords']
    """
    places = [CLIENT_HOOKS[axis].get(axes.get(axis, "")) for axis in CLIENT_HOOKS]
    return [load(place) for place in places if place]


def available(axis: str) -> list[str]:
    """Return the names of an axis.

    >>> available("uplink")
    ['dense', 'top-k']
    """
    return list(AXES[axis])


def resolve(axis: str, name: str) -> Any:
    """Import and return what a name stands for.

    >>> resolve("client-selector", "all").__name__
    'Everyone'
    """
    return load(AXES[axis][name])


def stream_rule(name: str) -> Any:
    """Import and return the rule of a stream.

    >>> stream_rule("fifo").__name__
    'Fifo'
    """
    return load(STREAM_RULES[name])
