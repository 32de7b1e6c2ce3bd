"""What the methods share that put clients into cohorts."""

from dataclasses import dataclass
from typing import Literal

from .base import AtLeastOne, Count, Method, Settings, key


class CohortSettings(Settings):
    """Settings that several cohort methods share."""

    section = "cohort"
    share: Literal["auto", "none", "changes", "body"] = key(
        "auto",
        'what cohorts share: "none" for models of their own, "changes" for what all '
        'clients learn as far as few of a cohort take part, "body" for one body that all '
        'clients train, with a last layer for each cohort; "auto" is changes with cohorts by '
        "similarity, else none",
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
