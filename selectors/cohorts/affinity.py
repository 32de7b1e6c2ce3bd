"""A client's record of the cohorts: the soft state of Auxo (section 5.1).

Only the client stores these records. With its next message the server sends what it found in a
round (:class:`Feedback`, and the leaves of the tree); the client updates its records and returns
them as its request. A client that lost its records explores again.
"""

import math
from dataclasses import dataclass
from typing import Any

from .rewards import decayed, predicted
from .tree import CohortTree, parent_of, path_distance

OWN_SIDE = 0.1  # what a split adds to the reward of the part that a client lies in (line 22)
NO_INDEX = -1
_LONGEST_NAME = 200  # of a cohort: a tree that deep has split a hundred times
_ABSURD = 1e6  # rewards are at most 1 and hardly below -10
_LARGEST = 32_767  # number of a cluster; servers keep them in two bytes


@dataclass(frozen=True)
class AffinityRecord:
    """One client and one cohort."""

    reward: float = 0.0  # how well it fits, R
    # The number of its cluster in the cohort, L, which is the last number of the child's path once
    # the cohort is split; -1 for none
    index: int = NO_INDEX
    known: bool = False  # whether it trained there, or lay on that side when the parent was split


@dataclass(frozen=True)
class Feedback:
    """What the server found about one participant of a round."""

    cohort: str  # with which it trained
    # Instant reward; not a number while there is only one cohort, or if the update was zero
    reward: float
    index: int  # its cluster within the cohort; -1 for none
    serial: int  # differs from that of the feedback before, so that what arrives twice counts once


class Affinity:
    """The records of one client.

    Cluster 1 of cohort 0, then cohort 0 is split in two:

    >>> mine = Affinity()
    >>> mine.learn(Feedback("0", math.nan, 1, serial=1), CohortTree.of_leaves(["0.0", "0.1"]))
    >>> {leaf: mine.records[leaf].reward for leaf in ["0.0", "0.1"]}
    {'0.0': 0.0, '0.1': 0.1}
    """

    def __init__(self, records: dict[str, AffinityRecord] | None = None, serial: int = 0) -> None:
        self.records = dict(records or {})
        self.serial = serial

    def learn(
        self,
        feedback: Feedback | None,
        tree: CohortTree,
        rate: float = 0.2,
        every_round: bool = False,
    ) -> None:
        """Update the records from a message: the server's feedback, then the present cohorts.

        When a client explores, or in every round if ``every_round``, it also predicts the rewards
        of the cohorts that it has not tried (:func:`predicted`).
        """
        if feedback is not None and feedback.serial != self.serial:
            self.serial = feedback.serial
            self._update(feedback, rate, every_round)
        self.records = self.inherited(tree).records

    def _update(self, feedback: Feedback, rate: float, every_round: bool) -> None:
        """Update the rewards of the cohort that was tried, and of those that never were."""
        cohort, instant = feedback.cohort, feedback.reward
        seen = self.records.get(cohort, AffinityRecord())
        reward, index = seen.reward, seen.index if feedback.index == NO_INDEX else feedback.index
        if math.isfinite(instant):
            explores = every_round or not seen.known
            for other in self._untried(besides=cohort) if explores else ():
                before, distance = self.records[other], path_distance(cohort, other)
                expected = predicted(before.reward, instant, distance)
                self.records[other] = AffinityRecord(expected, before.index)
            reward = float(decayed(reward, instant, rate))
        self.records[cohort] = AffinityRecord(reward, index, known=True)

    def _untried(self, besides: str) -> list[str]:
        split = {parent_of(cohort) for cohort in self.records}
        open_to_it = [c for c, record in self.records.items() if not record.known]
        return [cohort for cohort in open_to_it if cohort not in split and cohort != besides]

    def inherited(self, tree: CohortTree) -> "Affinity":
        """Return the records for the cohorts there are now (section 5.1, request match).

        Children that are new to the client start from the parent's reward, plus 0.1 for the
        client's own side (line 22). A request for a cohort that has been split therefore goes to
        the leaf of the client's cluster index, else to the leaf with the largest reward, else to
        any. Cohorts that are not in the tree are forgotten.
        """
        records: dict[str, AffinityRecord] = {}
        for cohort in tree.cohorts():
            records[cohort] = self.records.get(cohort) or _child(cohort, records)
        return Affinity(records, self.serial)

    def strange(self, tree: CohortTree) -> list[str]:
        """Return the recorded cohorts that cannot have come from this server.

        Those below a leaf can: the server may have gone back to a state before a split.
        """
        return [c for c in self.records if c not in tree and tree.children(tree.nearest(c))]

    def state_dict(self) -> dict[str, Any]:
        """Return the records as lists: what the client keeps, and what it sends as its request."""
        records = self.records.values()
        return {
            "cohorts": list(self.records),
            "rewards": [record.reward for record in records],
            "indices": [record.index for record in records],
            "known": [record.known for record in records],
            "serial": self.serial,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; it may come from a stranger."""
        columns = [list(state[name]) for name in ("cohorts", "rewards", "indices", "known")]
        if len({len(column) for column in columns}) > 1:
            raise ValueError(f"records: columns of {[len(c) for c in columns]} entries")
        cohorts, rewards, indices, known = columns
        if any(not isinstance(c, str) or len(c) > _LONGEST_NAME for c in cohorts):
            raise ValueError(f"cohorts: expected names of at most {_LONGEST_NAME} characters")
        if not all(math.isfinite(reward) and abs(reward) < _ABSURD for reward in rewards):
            raise ValueError(f"rewards: expected finite numbers, got {rewards}")
        if not all(NO_INDEX <= int(index) <= _LARGEST for index in indices):
            raise ValueError(f"indices: expected {NO_INDEX} to {_LARGEST}, got {indices}")
        rows = zip(map(float, rewards), map(int, indices), map(bool, known), strict=True)
        self.records = {str(c): AffinityRecord(*row) for c, row in zip(cohorts, rows, strict=True)}
        self.serial = int(state["serial"])


def _child(cohort: str, records: dict[str, AffinityRecord]) -> AffinityRecord:
    """Return the record of a cohort that is new to a client."""
    parent = records.get(cohort.rpartition(".")[0])
    if parent is None:
        return AffinityRecord()
    own = parent.index != NO_INDEX and cohort.endswith(f".{parent.index}")
    return AffinityRecord(parent.reward + OWN_SIDE * own, known=own)
