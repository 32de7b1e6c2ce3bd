"""Settings of the methods that put clients into cohorts by their updates."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .base import AtLeastOne, Count, Method, NonNegative, Positive, Settings, Share

AUTO = -1  # what suits the method and the run

_Auto = Annotated[int, Field(ge=AUTO)]


@dataclass(frozen=True)
class SplitTimes:
    """When a cohort may be split and into how many, with nothing left to choose."""

    parts: int
    first_clustering: int
    first_split: int
    last_split: int
    split_rounds: int
    min_participants: int


class Cohort(Settings):
    """How cohorts are found, and when they change."""

    section = "cohort"
    share: Literal["auto", "none", "changes", "body"] = Field(
        default="auto",
        description='what cohorts have in common: "none" for models of their own, "changes" for '
        'what all clients learn as far as few of a cohort take part, "body" for one body that all '
        'clients train, with a last layer for each cohort; "auto" is changes with cohorts by '
        "similarity, else none",
    )
    parts: _Auto = Field(
        default=AUTO,
        description="most parts that a cohort is split into (K); -1 for 8, and 4 with auxo-paper",
    )
    dimension: Annotated[int, Field(ge=5)] = Field(
        default=256, description="length of the sketches that updates are compared by"
    )
    first_clustering: _Auto = Field(
        default=AUTO,
        description="rounds of a cohort before auxo-paper looks for clusters; -1 for 5",
    )
    first_split: _Auto = Field(
        default=AUTO,
        description="rounds of a cohort before it may be split; -1 for 1 with auxo, 20 with "
        "auxo-paper, and a quarter of the run but at most 20 with cfl and fl-hc",
    )
    last_split: Count = Field(
        default=0, description="rounds of a cohort after which it is not split; 0 means no limit"
    )
    split_rounds: _Auto = Field(
        default=AUTO,
        description="rounds in a row in which a split must be worth it; -1 for 2, and 3 with "
        "auxo-paper",
    )
    within_groups: Share = Field(
        default=0.15,
        description="auxo splits where at most this share of the variance between clients, along "
        "its main directions, is within groups",
    )
    split_exponent: NonNegative = Field(
        default=0.5,
        description="a split into K parts must reduce heterogeneity by K to this power: 0.5 as "
        "lemma 4.1 says of J, 1 for its square root (auxo-paper)",
    )
    min_participants: _Auto = Field(
        default=AUTO,
        description="participants per round that each part must keep; -1 for a tenth of the run's "
        "participants, and 10 with auxo-paper",
    )
    exploration: Share = Field(
        default=0.3, description="share of clients that try another cohort at first (auxo-paper)"
    )
    exploration_decay: Share = Field(
        default=0.99, description="factor applied to that share every round"
    )
    reward_rate: Share = Field(
        default=0.2, description="weight of a new reward against earlier ones"
    )
    lies_allowed: AtLeastOne = Field(
        default=3, description="requests that contradict the update before a client is barred"
    )
    ask_newcomers: _Auto = Field(
        default=AUTO,
        description="rounds after a split before clients that no cohort knows, or that do not fit "
        "theirs, are asked for the loss of each cohort's model; 0 means never: they try cohorts; "
        "-1 for 1, and 0 with local-dp",
    )
    number: AtLeastOne = Field(default=3, description="number of cohorts, for ifca and flexcfl")
    pretrain_steps: AtLeastOne = Field(
        default=50, description="local steps of the updates that flexcfl groups clients by"
    )
    distance: Positive = Field(
        default=0.5, description="cosine distance up to which fl-hc merges clusters"
    )
    mean_norm: Positive = Field(
        default=0.5,
        description="cfl splits when the mean update is shorter than this share of the longest",
    )
    longest_norm: Share = Field(
        default=0.5,
        description="cfl splits while the longest update is longer than this share of the longest "
        "of all rounds; 0 means always",
    )
    cross_similarity: Annotated[float, Field(ge=-1.0, le=1.0)] = Field(
        default=0.35,
        description="cfl does not split where two clients of different parts have updates with at "
        "least this cosine; 1 splits in any case",
    )

    def shared(self, cohorts: str, similarity: str, buffer: int = 0) -> str:
        """Return what cohorts have in common in a run; papers to the letter share nothing.

        >>> Cohort().shared("similarity", "index-overlap"), Cohort().shared("auxo", "")
        ('changes', 'none')
        >>> Cohort().shared("similarity", "index-overlap-paper")
        'none'
        """
        if self.share != "auto":
            return self.share
        apart = cohorts != "similarity" or similarity.endswith("-paper") or buffer
        return "none" if apart else "changes"

    def problems(self) -> list[str]:
        """Return which numbers must not be 0."""
        values = {name: getattr(self, name) for name in _AT_LEAST_ONE}
        return [
            f"cohort.{name.replace('_', '-')} = 0: must be -1 or at least 1"
            for name, value in values.items()
            if value == 0
        ]

    def for_auxo(self, participants: int) -> SplitTimes:
        """Return what auxo does in a run with this many participants per round.

        >>> Cohort().for_auxo(30)  # doctest: +ELLIPSIS
        SplitTimes(parts=8, ..., split_rounds=2, min_participants=3)
        """
        return SplitTimes(
            parts=_or(self.parts, 8),
            first_clustering=1,
            first_split=_or(self.first_split, 1),
            last_split=self.last_split,
            split_rounds=_or(self.split_rounds, 2),
            min_participants=_or(self.min_participants, max(1, participants // 10)),
        )

    def for_paper(self) -> SplitTimes:
        """Return what auxo-paper does."""
        return SplitTimes(
            parts=_or(self.parts, 4),
            first_clustering=_or(self.first_clustering, 5),
            first_split=_or(self.first_split, 20),
            last_split=self.last_split,
            split_rounds=_or(self.split_rounds, 3),
            min_participants=_or(self.min_participants, 10),
        )

    def joint_rounds(self, rounds: int) -> int:
        """Return for how many rounds of a run cfl and fl-hc train one model.

        >>> Cohort().joint_rounds(40), Cohort().joint_rounds(200)
        (10, 20)
        """
        return _or(self.first_split, min(20, rounds // 4))


_AT_LEAST_ONE = ("parts", "split_rounds", "min_participants")


def _or(value: int, usual: int) -> int:
    return usual if value == AUTO else value


@dataclass(frozen=True, kw_only=True)
class CohortMethod(Method):
    """A way to put clients into cohorts.

    Parameters
    ----------
    rule : str
        Where the rule of the layer is: a ``CohortRule``, made from the run config.
    """

    axis: str = "cohorts"
    outer: str = "strategies.layers.cohorts:Cohorts.of_run"
    rule: str = ""

    def keys_read(self) -> list[str]:
        """Return the keys of the run config that it reads; that of the layer included."""
        return list(dict.fromkeys([*super().keys_read(), "cohort.share"]))
