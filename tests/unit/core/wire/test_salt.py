"""What travels cannot be foreseen, and arrives as it was."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from forager.client_app.app import app
from forager.core.config import default_config
from forager.core.wire.arrays import checked_arrays, from_record, sizes_of, to_record
from forager.core.wire.flower_private import TaskIdentity, by_wire
from forager.core.wire.keys import IDENTIFY
from forager.core.wire.salt import is_salted, salted, unsalted

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "none": np.zeros((0, 4), np.float16),
    "count": np.array(3),
}


def message(*, torch: bool = False) -> Message:
    arrays = ArrayRecord(list(ARRAYS.values())) if torch else to_record(ARRAYS)
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
    content["metrics"] = MetricRecord({"loss": 0.5, "each": [1, 2]})
    content["empty"] = ConfigRecord()
    return Message(content, dst_node_id=7, message_type="train")


def names(messages: list[Message]) -> set[str]:
    """All objects below the messages, by the names that the SuperLink knows them by."""
    return {name for each in messages for name in get_all_nested_objects(each.content)}


@pytest.mark.parametrize("torch", [False, True], ids=["ours", "Flower's"])
def test_no_object_is_called_as_before(torch: bool) -> None:
    plain = message(torch=torch)
    first, second = salted([plain]), salted([plain])
    sent = names(first)
    assert len(sent) == len(names([plain])) + 1
    assert not sent & names([plain])
    assert not sent & names(second)


def test_an_empty_message_cannot_be_foreseen_either() -> None:
    empty = Message(RecordDict(), dst_node_id=7, message_type="query.identify")
    (first,), (second,) = salted([empty]), salted([empty])
    assert len({each.content.object_id for each in (empty, first, second)}) == 3
    assert len(unsalted(first).content) == 0


def test_messages_that_share_records_still_do() -> None:
    shared = message().content
    copies = salted([Message(shared, dst_node_id=n, message_type="train") for n in (7, 8, 9)])
    assert len({id(copy.content["arrays"]) for copy in copies}) == 1
    assert len({copy.content.object_id for copy in copies}) == 3


def test_it_arrives_as_it_was() -> None:
    sent = message()
    (copy,) = salted([sent])
    assert copy.metadata is sent.metadata, "the id that Flower gives it is the message's"
    got = unsalted(by_wire(copy))
    assert list(got.content) == list(sent.content)
    for name in ("config", "metrics", "empty"):
        assert got.content[name] == sent.content[name]
    for read in (from_record, lambda record: checked_arrays(record, ARRAYS)):
        arrays = read(got.content["arrays"])
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], array)
            assert arrays[name].dtype == array.dtype
    assert sizes_of(got.content) == sizes_of(sent.content)
    assert sizes_of(sent.content) == sizes_of(message().content), "what was given is not changed"


def test_values_stay_aligned() -> None:
    (copy,) = salted([message()])
    data = copy.content["arrays"]["weight"].data
    assert (10 + int.from_bytes(data[8:10], "little")) % 64 == 0


def test_a_device_answers_with_salt_where_it_was_asked_with_it() -> None:
    asked = Message(RecordDict(), dst_node_id=7, message_type=IDENTIFY)
    node = {"partition-id": 0, "num-partitions": 2}
    replies = []
    for each in (asked, *salted([asked])):
        each.metadata.__dict__["_message_id"] = "a"
        replies.append(app(each, Context(1, 7, node, RecordDict(), default_config())))
    plain, with_salt = replies
    assert not is_salted(plain)
    assert is_salted(with_salt)
    assert unsalted(with_salt).content == plain.content


def test_errors_are_as_they_were() -> None:
    error = Message(Error(2, "no"), reply_to=message())
    (copy,) = salted([error])
    assert unsalted(copy).error.reason == "no"
