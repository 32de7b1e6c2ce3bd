"""Other ways to put clients into cohorts, which Auxo is compared with."""

from typing import Any

from .cohort import CohortMethod, CohortSettings


def _rule(name: str, about: str, paper: str, reads: str, **more: Any) -> CohortMethod:
    """Return a rule that reads one key, and compares clients in its own way."""
    return CohortMethod(
        name=name,
        about=about,
        paper=paper,
        settings=(CohortSettings,),
        reads=(reads,),
        requires={"similarity": ("none",)},
        **more,
    )


_TOLD: dict[str, Any] = {"releases": ("who is in which cohort",)}
_BY_LOSS: dict[str, Any] = {"sends": ("loss",)}
_BY_UPDATE: dict[str, Any] = _TOLD | {"sends": ("update",)}

METHODS = (
    _rule(
        "ifca",
        "a given number of models; every client trains the one with the lowest loss",
        "Ghosh et al., 2020: An Efficient Framework for Clustered Federated Learning",
        "number",
        core="selectors.cohorts.ifca:Ifca",
        rule="strategies.cohorts.ifca:IfcaRule",
        **_BY_LOSS,
    ),
    _rule(
        "clove",
        "a given number of models, for clusters of clients by their losses on all of them",
        "Bhatia et al., 2025: CLoVE, Clustering of Loss Vector Embeddings",
        "number",
        core="selectors.cohorts.clove:Clove",
        rule="strategies.cohorts.ifca:CloveRule",
        **_BY_LOSS | _TOLD,
    ),
    _rule(
        "cfl",
        "a cohort is split in two once it has converged and its clients have not",
        "Sattler, Müller and Samek, 2020: Clustered Federated Learning",
        "joint-rounds",
        core="selectors.cohorts.cfl:Cfl",
        rule="strategies.cohorts.cfl:CflRule",
        **_TOLD,
    ),
    _rule(
        "flexcfl",
        "a given number of groups, by the updates of some clients' pretraining",
        "Duan et al., 2021: Flexible Clustered Federated Learning",
        "number",
        core="selectors.cohorts.flexcfl:FlexCfl",
        rule="strategies.cohorts.grouped:FlexCflRule",
        **_BY_UPDATE,
    ),
    _rule(
        "fl-hc",
        "after some joint rounds, one clustering of all clients' updates",
        "Briggs, Fan and Andras, 2020: Federated Learning with Hierarchical Clustering",
        "joint-rounds",
        core="selectors.cohorts.fl_hc:FlHc",
        rule="strategies.cohorts.grouped:FlHcRule",
        **_BY_UPDATE,
    ),
)
