"""What clients say of themselves, read row by row."""

import math
from typing import Any

from forager.core.wire.keys import HISTOGRAM, SIMILARITY
from forager.strategies.federation.observations import answered


class Told:
    """As much of a table of replies as is read."""

    def __init__(self, name: str, *values: Any) -> None:
        self.metrics = {name: list(values)}

    def __len__(self) -> int:
        (values,) = self.metrics.values()
        return len(values)


def test_a_histogram_has_a_count_from_zero_on_for_each_label() -> None:
    told: Any = Told(HISTOGRAM, [0.0, 2.0, 5.0], [1.0, 2.0], [-1.0, 0.0, 0.0], None)
    values, wrong = answered(HISTOGRAM, labels=3)(told)
    assert values == [[0.0, 2.0, 5.0], None, None, None]
    assert list(wrong) == [1, 2, 3]


def test_one_similarity_without_bounds_that_is_no_number_spoils_no_other() -> None:
    told: Any = Told(SIMILARITY, 0.5, math.inf, -9.0, math.nan)
    values, wrong = answered(SIMILARITY, bounded=False)(told)
    assert values == [0.5, None, -9.0, None]
    assert list(wrong) == [1, 3]
