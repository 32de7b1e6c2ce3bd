"""What clients say of themselves, read row by row."""

from typing import Any

from forager.core.wire.keys import HISTOGRAM
from forager.strategies.federation.observations import answered


class Told:
    """As much of a table of replies as is read."""

    metrics = {HISTOGRAM: [[0.0, 2.0, 5.0], [1.0, 2.0], [-1.0, 0.0, 0.0], None]}  # noqa: RUF012

    def __len__(self) -> int:
        return 4


def test_a_histogram_has_a_count_from_zero_on_for_each_label() -> None:
    told: Any = Told()
    values, wrong = answered(HISTOGRAM, labels=3)(told)
    assert values == [[0.0, 2.0, 5.0], None, None, None]
    assert list(wrong) == [1, 2, 3]
