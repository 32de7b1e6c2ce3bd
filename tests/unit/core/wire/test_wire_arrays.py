import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from forager.core.wire.arrays import (
    LiveArray,
    checked_view,
    from_record,
    num_bytes,
    to_record,
    view,
)

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

ARRAYS: dict[str, Any] = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.linspace(0, 1, 5).astype(np.float16),
    "double": np.linspace(0, 1, 5),
    "counter": np.array(7, dtype=np.int64),
    "scalar": np.array(1.5, dtype=np.float32),
    "flags": np.array([True, False]),
    "bytes": np.arange(5, dtype=np.uint8),
    "nothing": np.zeros((0, 3), dtype=np.float32),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "strided": np.arange(20, dtype=np.float32)[::3],
    "not finite": np.array([np.nan, np.inf, -0.0], dtype=np.float32),
}
arrays = pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())


@arrays
def test_looks_like_the_array_that_flower_would_make(array: Any) -> None:
    live, plain = LiveArray(array), Array(array)
    assert isinstance(live, Array)
    assert (live.dtype, live.shape, live.stype) == (plain.dtype, plain.shape, plain.stype)
    assert live.data == plain.data
    np.testing.assert_array_equal(live.numpy(), plain.numpy())


@arrays
def test_a_copy_or_a_pickle_is_a_plain_array(array: Any) -> None:
    live = LiveArray(array)
    for other in (copy.deepcopy(live), copy.copy(live), pickle.loads(pickle.dumps(live))):
        assert type(other) is Array
        np.testing.assert_array_equal(other.numpy(), array)
        assert other.numpy().dtype == array.dtype


def message_with(records: dict[str, Any]) -> Message:
    return Message(RecordDict(records), dst_node_id=5, message_type="train")


def assert_arrived(message: Message) -> None:
    record = message.content["arrays"]
    assert isinstance(record, ArrayRecord)
    assert list(record) == list(ARRAYS)
    for name, array in record.items():
        assert type(array) is Array
        assert array.dtype == str(ARRAYS[name].dtype)
        np.testing.assert_array_equal(array.numpy(), ARRAYS[name])


def test_survives_flowers_serialisation() -> None:
    assert_arrived(
        message_from_proto(message_to_proto(message_with({"arrays": to_record(ARRAYS)})))
    )


def test_survives_the_way_flower_sends_objects() -> None:
    """In deployment a message is taken apart into objects, each sent by its digest."""
    message = message_with({"arrays": to_record(ARRAYS)})
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(arrived, Message)
    assert_arrived(arrived)


@arrays
def test_has_the_digest_of_the_plain_array(array: Any) -> None:
    """Identical arrays are sent once, live or not."""
    assert LiveArray(array).object_id == Array(array).object_id


def test_a_record_of_several_chunks_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flwr.app.message.array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 64)
    message = message_with({"arrays": to_record({"long": np.arange(1000, dtype=np.float32)})})
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    assert len(contents) > 60
    arrived = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(arrived, Message)
    record = arrived.content["arrays"]
    np.testing.assert_array_equal(record["long"].numpy(), np.arange(1000))  # type: ignore[union-attr]


def test_numpy_is_a_private_copy_and_a_view_is_not() -> None:
    array = np.arange(4, dtype=np.float32)
    live = LiveArray(array)
    mine = live.numpy()
    mine[:] = 9
    assert array.tolist() == [0, 1, 2, 3]
    assert live.numpy().tolist() == [0, 1, 2, 3]
    assert view(live) is array
    assert mine.flags.writeable


def test_equal_to_the_plain_array_and_to_nothing_else() -> None:
    array = np.arange(4, dtype=np.float32)
    assert LiveArray(array) == Array(array)
    assert LiveArray(array) == LiveArray(array.copy())
    assert LiveArray(array) != LiveArray(array + 1)
    assert LiveArray(array) != LiveArray(array.astype(np.float64))
    assert LiveArray(array) != array.tolist()
    with pytest.raises(TypeError):
        hash(LiveArray(array))


def test_equal_records_are_equal() -> None:
    plain = ArrayRecord({name: Array(array) for name, array in ARRAYS.items()})
    assert to_record(ARRAYS) == plain


def test_records_there_and_back() -> None:
    back = from_record(to_record(ARRAYS))
    assert list(back) == list(ARRAYS)
    for name, array in back.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
    plain = ArrayRecord({"w": Array(np.ones(3))})
    np.testing.assert_array_equal(from_record(plain)["w"], np.ones(3))


def test_a_record_takes_scalars_of_numpy() -> None:
    record = to_record({"x": np.float32(2.5)})  # type: ignore[dict-item]
    assert from_record(record)["x"].shape == ()
    assert record["x"].dtype == "float32"


def test_a_live_record_can_be_turned_into_tensors_and_lists_as_flower_does() -> None:
    record = to_record({"w": np.arange(3, dtype=np.float32)})
    assert torch.equal(record.to_torch_state_dict()["w"], torch.arange(3.0))
    assert [array.tolist() for array in record.to_numpy_ndarrays()] == [[0, 1, 2]]
    assert record.copy().keys() == record.keys()


@arrays
def test_bytes_are_those_of_the_values(array: Any) -> None:
    assert num_bytes(LiveArray(array)) == num_bytes(Array(array)) == array.nbytes


@arrays
def test_a_view_is_the_array_itself_or_what_the_bytes_say(array: Any) -> None:
    assert view(LiveArray(array)) is array
    np.testing.assert_array_equal(view(Array(array)), array)


@arrays
def test_a_checked_view_of_what_fits_is_the_array(array: Any) -> None:
    for sent in (LiveArray(array), Array(array)):
        np.testing.assert_array_equal(checked_view(sent, np.zeros_like(array)), array)


@pytest.mark.parametrize(
    "other",
    [
        np.zeros(4, np.float32),
        np.zeros((3, 1), np.float32),
        np.zeros(3, np.float64),
        np.zeros(3, np.int32),
        np.zeros(3, ">f4"),
    ],
)
def test_a_checked_view_of_anything_else_is_refused(other: Any) -> None:
    for sent in (LiveArray(other), Array(other)):
        with pytest.raises(ValueError, match="instead of"):
            checked_view(sent, np.zeros(3, np.float32))
