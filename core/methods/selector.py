"""Client selectors: the layer around rules, how it gets its summaries, all rules but CosAge."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Configured, Count, Method, Settings, key
from .ios import CHANGE_KEYS, PAPER, SUPPORT_KEYS, Ios

PROXY_BATCHES = 4  # mini-batches of the proxy update that a similarity is computed from


class Summary(Settings):
    """What clients report before they are chosen, and how."""

    section = "summary"
    mode: Literal["query", "piggyback"] = key(
        "query",
        '"query" asks clients before choosing; "piggyback" uses what they reported in their '
        "last training reply",
    )
    power: Annotated[float, Field(ge=1.0)] = key(4.0, "p of the norm in which updates are compared")
    form: Literal["unit", "printed", "index-overlap"] = key(
        "unit",
        'how updates are compared: "unit" divides both by their norm first; "printed" is eq. 8 '
        'and 9 as printed; "index-overlap" (ours, after IOS) is the share of their largest '
        "entries that they have in common",
    )
    ask_at_most: Count = key(
        0, "ask at most this many clients per round, the oldest first; 0 asks all"
    )


@dataclass(frozen=True, kw_only=True)
class Selector(Method):
    """A rule that chooses clients. Settings in the section of its own name go to its core."""

    axis: str = "client-selector"
    layer: str = "strategies.layers.selection:Selection.of_run"

    def arguments(self, config: Configured) -> dict[str, Any]:
        """Return what its core is made with in a run."""
        own = next((config[kind] for kind in self.settings if kind.section == self.name), None)
        return {} if own is None else own.model_dump()


@dataclass(frozen=True, kw_only=True)
class HicsMethod(Selector):
    """HiCS-FL, whose preference fades in the course of the run."""

    def arguments(self, config: Configured) -> dict[str, Any]:
        """Return the rounds of the run."""
        return {"rounds": max(1, config.num_server_rounds)}


def _rule(name: str, about: str, core: str) -> Selector:
    return Selector(
        name=name,
        about=about,
        settings=(Summary,),
        core=f"selectors.client_selectors.dissimilarity:{core}",
        hook="client_app.hooks.similarity:UpdateSimilarity",
        sends=("similarity",),
    )


# By losses that clients are asked for, or that came with their last updates
_BY_LOSS: dict[str, Any] = {
    "settings": (Summary,),
    "reads": ("mode", "ask-at-most"),
    "sends": ("loss",),
}

METHODS = (
    HicsMethod(
        name="hics",
        about="clients with many classes first, estimated from the output layer's updates",
        paper="Chen and Vikalo, 2024: Heterogeneity-Guided Client Sampling (HiCS-FL)",
        core="selectors.client_selectors.hics:Hics",
        needs=("classes", "linear head", "output bias"),
    ),
    Selector(
        name="fed-cbs",
        about="sets of clients whose pooled classes are balanced (receives label counts)",
        paper="Zhang et al., 2023: Fed-CBS, Client Sampling via Class-Imbalance Reduction",
        core="selectors.client_selectors.fed_cbs:FedCbs",
        sends=("labels",),
        needs=("classes",),
    ),
    Selector(
        name="fedcor",
        about="clients expected to lower all losses most, by a Gaussian process",
        paper="Tang et al., 2022: FedCor, Correlation-Based Active Client Selection",
        core="selectors.client_selectors.fedcor:FedCor",
        **_BY_LOSS,
    ),
    Selector(
        name="divfl",
        about="clients whose last updates represent those of all others",
        paper="Balakrishnan et al., 2022: Diverse Client Selection via Submodular Maximization",
        core="selectors.client_selectors.divfl:DivFl",
    ),
    Selector(
        name="flad",
        about="clients with at least the mean loss, drawn at random if they are too many",
        paper="Doriguzzi-Corin and Siracusa, 2024: FLAD, Adaptive Federated Learning",
        core="selectors.client_selectors.by_loss:Flad",
        **_BY_LOSS,
    ),
    Selector(
        name="cluster-oracle",
        about="one client from each cluster of label histograms, in turn (uses true labels)",
        core="selectors.client_selectors.cluster_oracle:ClusterOracle",
        sends=("labels",),
        needs=("classes",),
    ),
    Selector(
        name="oort",
        about="clients with a high loss and fast replies, and some never chosen before",
        paper="Lai et al., 2021: Oort, Efficient FL via Guided Participant Selection",
        core="selectors.client_selectors.oort:Oort",
        hook="client_app.hooks.utility:StatisticalUtility",
        sends=("loss",),
    ),
    Selector(
        name="local-loss",
        about="clients with the highest loss",
        core="selectors.client_selectors.by_loss:LocalLoss",
        **_BY_LOSS,
    ),
    Selector(
        name="power-of-choice",
        about="clients with the highest loss among twice as many, drawn at random",
        paper="Cho, Wang and Joshi, 2020: Client Selection in Federated Learning",
        core="selectors.client_selectors.by_loss:PowerOfChoice",
        **_BY_LOSS,
    ),
    _rule(
        "dissimilarity", "clients whose update differs most from the global one", "MostDissimilar"
    ),
    _rule(
        "dissimilarity-cooldown",
        "the same, but the half that was chosen most recently rests",
        "MostDissimilarAfterCooldown",
    ),
    _rule(
        "dissimilarity-sampling",
        "clients drawn in proportion to their dissimilarity (CosAge, eq. 11)",
        "DissimilaritySampling",
    ),
    Selector(
        name="support-diversity",
        about="clients whose important parameters overlap least",
        after=PAPER,
        settings=(Ios,),
        reads=SUPPORT_KEYS,
        core="selectors.client_selectors.support_diversity:SupportDiversity",
        hook="client_app.hooks.supports:IndexSignatures",
        sends=("signature",),
    ),
    Selector(
        name="signed-diversity",
        about="clients whose largest changes agree least",
        after=PAPER,
        settings=(Ios,),
        reads=CHANGE_KEYS,
        core="selectors.client_selectors.support_diversity:SupportDiversity",
        hook="client_app.hooks.supports:ChangeSignatures",
        sends=("signature of changes and their signs",),
        requires={"similarity": ("none", "signed-overlap")},
    ),
)
