"""Replies that wait for others wait on the disk of the run, and are read again as they came."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fakes import answer, honest_records, small_model
from flwr.app import ConfigRecord, Message, RecordDict
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CONFIG, NUM_EXAMPLES, ROUND
from forager.core.wire.replies import Replies
from forager.strategies.federation import waiting_replies
from forager.strategies.federation.waiting_replies import WaitingReplies

MODEL = small_model()


def table(key: str) -> Replies:
    sent = RecordDict({ARRAYS: to_record(MODEL), CONFIG: ConfigRecord({ROUND: 1})})
    message = Message(sent, 1, "train")
    found = Replies.of(answer(message, honest_records(message, key)))
    assert not found.fitting(ARRAYS, MODEL)
    return found


@pytest.mark.parametrize("most", [0, 70, 2**27], ids=["on disk", "one in memory", "in memory"])
def test_they_are_read_as_often_as_needed_whatever_readers_do(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_replies, "IN_MEMORY", most)
    with closing(WaitingReplies(tmp_path)) as waiting:
        for key in "012":
            waiting.add("even" if key in "02" else "odd", table(key))
        for _ in range(2):
            assert list(waiting) == ["even", "odd"]
            for key, found in zip("02", waiting.of("even"), strict=True):
                wanted = table(key)
                assert found.arrays.keys() == wanted.arrays.keys()
                for name, stack in wanted.arrays.items():
                    assert found.arrays[name].dtype == stack.dtype
                    np.testing.assert_array_equal(found.arrays[name], stack)
                assert found.take_metric(NUM_EXAMPLES) == wanted.metrics[NUM_EXAMPLES]
                found.drop(ARRAYS)
        assert not list(tmp_path.iterdir())  # nothing to clean up after a crash


def test_they_wait_where_the_run_is_not_where_memory_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_replies, "IN_MEMORY", 0)
    with pytest.raises(FileNotFoundError, match="no-disk"):
        WaitingReplies(tmp_path / "no-disk").add("0", table("1"))
