from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from forager.core.wire.arrays import record_bytes, sizes_of, to_record


def test_arrays_count_their_values() -> None:
    arrays: dict[str, Any] = {
        "w": np.zeros((3, 4), np.float32),
        "n": np.array(3, np.int64),
        "e": np.zeros(0),
    }
    assert record_bytes(to_record(arrays)) == 48 + 8
    assert record_bytes(ArrayRecord({n: Array(a) for n, a in arrays.items()})) == 48 + 8


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"12345", 5),
        (b"", 0),
        ("text", 4),
        ("käse", 5),
        (3, 8),
        (0.5, 8),
        (True, 8),
        ([1, 2, 3], 24),
        (["ab", "c"], 3),
        ([b"ab", b"c"], 3),
        ([], 0),
    ],
)
def test_other_values(value: object, size: int) -> None:
    assert record_bytes(ConfigRecord({"x": value})) == size  # type: ignore[dict-item]


def test_a_message_is_the_sum_of_its_records() -> None:
    content = RecordDict(
        {
            "arrays": to_record({"w": np.zeros(10, np.float16)}),
            "metrics": MetricRecord({"loss": 0.5, "counts": [1, 2]}),
            "config": ConfigRecord({"key": "abc", "payload": b"1234"}),
        }
    )
    assert sizes_of(content)[0] == 20 + 24 + 7
    assert sizes_of(RecordDict())[0] == 0
