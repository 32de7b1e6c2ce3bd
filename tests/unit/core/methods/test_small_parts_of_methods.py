"""Small functions of core/methods, each by an example."""

from forager.core.methods.cohort import CohortSettings
from forager.core.methods.split_testing import SplitTestSettings


def test_joint_rounds_of_of_cohort():
    assert (CohortSettings().joint_rounds_of(40), CohortSettings().joint_rounds_of(200)) == (10, 20)


def test_least_part_of_split_testing():
    assert (
        SplitTestSettings().least_part(30),
        SplitTestSettings(min_participants=2).least_part(30),
    ) == (3, 2)
