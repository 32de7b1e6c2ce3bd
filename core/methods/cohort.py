"""Cohorts: the settings that several methods share, and the methods that Auxo is compared with."""

from dataclasses import dataclass
from typing import Any, Literal

from .base import AtLeastOne, Count, Method, Settings, key


class CohortSettings(Settings):
    """Settings that several cohort methods share."""

    section = "cohort"
    share: Literal["auto", "none", "changes", "body"] = key(
        "auto",
        'what cohorts share: "none"; "changes": the change of all clients, with more weight if '
        'fewer of a cohort take part; "body": one body that all clients train, with a last layer '
        'for each cohort; "auto" is changes with cohorts by similarity, else none',
    )
    number: AtLeastOne = key(3, "number of cohorts, for ifca, clove and flexcfl")
    joint_rounds: Count = key(
        0,
        "rounds with one model for all before cfl and fl-hc look for cohorts; 0 means a "
        "quarter of the run, but at most 20",
    )

    def shared(self, cohorts: str, similarity: str, buffer: int = 0) -> str:
        """Return what cohorts have in common in a run; a paper's cohorts share nothing."""
        if self.share != "auto":
            return self.share
        apart = cohorts != "similarity" or similarity == "index-overlap" or buffer
        return "none" if apart else "changes"

    def joint_rounds_of(self, rounds: int) -> int:
        """Return for how many rounds of a run one model is trained."""
        return self.joint_rounds or min(20, rounds // 4)


@dataclass(frozen=True, kw_only=True)
class CohortMethod(Method):
    """A way to put clients into cohorts."""

    axis: str = "cohorts"
    outer: str = "strategies.layers.cohorts:Cohorts.of_run"
    rule: str = ""  # where the ``CohortRule`` of the layer is, made from the run config

    def keys_read(self) -> list[str]:
        """Return the keys of the run config that it reads; that of the layer included."""
        return list(dict.fromkeys([*super().keys_read(), "cohort.share"]))


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
