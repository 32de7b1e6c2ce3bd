"""Split test: cohorts of similar clients, split where a test finds groups (after Auxo)."""

from .auxo import PAPER, SIMILARITIES
from .base import AtLeastOne, Count, Settings, key
from .cohort import CohortMethod


class SplitTestSettings(Settings):
    """When split-test splits a cohort, and into how many parts."""

    section = "split-test"
    parts: AtLeastOne = key(8, "most parts that a cohort is split into (K)")
    first_split: Count = key(1, "rounds of a cohort before it may be split")
    min_participants: Count = key(
        0, "participants per round that each part must keep; 0 means a tenth of the run's"
    )

    def least_part(self, participants: int, divisor: int = 10) -> int:
        """Return how many of a round's participants each part must keep."""
        return self.min_participants or max(1, participants // divisor)


METHODS = (
    CohortMethod(
        name="split-test",
        about="cohorts are split if updates show groups; clients without a cohort are asked",
        after=PAPER,
        presets={"split-test": {}},
        settings=(SplitTestSettings,),
        core="selectors.cohorts.split_testing:SplitTest",
        rule="strategies.cohorts.split_testing:SplitTestRule",
        releases=("who is in which cohort",),
        requires={"similarity": SIMILARITIES},
    ),
    CohortMethod(
        name="conflict-test",
        about="as split-test, but only if groups differ by more than their labels",
        after=f"{PAPER}; labels as in HiCS-FL (Chen and Vikalo, 2024)",
        settings=(SplitTestSettings,),
        core="selectors.cohorts.split_testing:SplitTest",
        rule="strategies.cohorts.split_testing:ConflictTestRule",
        releases=("who is in which cohort",),
        requires={"similarity": SIMILARITIES},
    ),
)
