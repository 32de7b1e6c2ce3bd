"""Split test: cohorts of similar clients, split where a test finds groups (after Auxo)."""

from pydantic import Field

from .auxo import PAPER, SIMILARITIES
from .base import AtLeastOne, Count, Settings, Share
from .cohort import CohortMethod


class SplitTestSettings(Settings):
    """When split-test splits a cohort, and whom it asks."""

    section = "split-test"
    parts: AtLeastOne = Field(default=8, description="most parts that a cohort is split into (K)")
    first_split: Count = Field(default=1, description="rounds of a cohort before it may be split")
    split_rounds: AtLeastOne = Field(
        default=2, description="rounds in a row in which groups must be seen"
    )
    within_groups: Share = Field(
        default=0.15,
        description="largest share of the variance between clients, along its main directions, "
        "that may be within groups",
    )
    min_participants: Count = Field(
        default=0,
        description="participants per round that each part must keep; 0 means a tenth of the run's",
    )
    ask_newcomers: Count = Field(
        default=1,
        description="rounds after a split before clients that no cohort knows, or that do not fit "
        "theirs, are asked for the loss of each cohort's model; 0 means never: they try cohorts; "
        "nobody is asked with local-dp",
    )

    def least_part(self, participants: int) -> int:
        """Return how many of a round's participants each part must keep.

        >>> SplitTestSettings().least_part(30), SplitTestSettings(min_participants=2).least_part(30)
        (3, 2)
        """
        return self.min_participants or max(1, participants // 10)


METHODS = (
    CohortMethod(
        name="split-test",
        about="cohorts are split where updates show groups; clients without one are asked",
        after=PAPER,
        presets={"split-test": {}},
        settings=(SplitTestSettings,),
        core="selectors.cohorts.split_testing:SplitTest",
        rule="strategies.cohorts.split_testing:SplitTestRule",
        releases=("who is in which cohort",),
        requires={"similarity": SIMILARITIES},
    ),
)
