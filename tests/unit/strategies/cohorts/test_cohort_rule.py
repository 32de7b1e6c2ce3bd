"""What all rules for cohorts have in common."""

from types import SimpleNamespace
from typing import Any

from forager.strategies.cohorts.base import CohortRule


class Reading(CohortRule):
    """A rule that reads rows, and finds no sense in the last one."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def hear_one(self, key: str, row: Any, sent: Any) -> None:
        self.heard.append(key)
        if key == "d":
            raise ValueError("no sense")


def test_rows_are_read_that_answer_a_model_and_are_not_to_be_skipped() -> None:
    rule, sent = Reading(), [SimpleNamespace() for _ in "abcd"]
    table: Any = SimpleNamespace(rows=lambda: [SimpleNamespace(place=place) for place in range(4)])
    models: Any = [sent[0], None, *sent[2:]]
    assert rule.hear(list("abcd"), table, models, skip={0}) == {3: "no sense"}
    assert rule.heard == ["c", "d"]
