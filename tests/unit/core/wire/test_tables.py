"""Requests and replies as tables: whatever is done to them, they are the messages they are for."""

from typing import Any

import numpy as np
import pytest
from fakes import answer, by_superlink
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.wire.arrays import from_record, sizes_of, to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS, CLIENT, CLIENT_KEY, CONTROL, METRICS, NOTE
from forager.core.wire.replies import Replies, ReplyStream, tables_in
from forager.core.wire.requests import Requests

NODES = [7, 8, 9]
LIKE = {"w": np.zeros((2, 3), np.float32), "n": np.array(0, np.int64)}


def model(value: float = 0.0) -> ArrayRecord:
    return to_record({"w": np.full((2, 3), value, np.float32), "n": np.array(int(value))})


def message(node: int = 7, message_id: str = "", **records: Any) -> Message:
    made = Message(RecordDict(records), dst_node_id=node, message_type="train")
    made.metadata.__dict__["_message_id"] = message_id
    return made


def table(**records: Any) -> Requests:
    return Requests(message(**records), list(NODES))


def contents(messages: Any) -> list[tuple[int, dict[str, Any]]]:
    return [(m.metadata.dst_node_id, dict(m.content)) for m in messages]


def test_a_record_that_all_share_is_one_record() -> None:
    sent = table(arrays=model(), config=ConfigRecord({"server-round": 3}))
    assert (sent.kind, sent.config, len(sent)) == ("train", {"server-round": 3}, 3)
    assert [m.metadata.dst_node_id for m in sent] == NODES
    assert len({id(m.content[ARRAYS]) for m in sent}) == 1
    assert list(sent) == sent.messages() == sent[:]


def test_messages_make_the_table_that_makes_them() -> None:
    shared, plan = model(), ConfigRecord({"label": 1})
    messages = [
        message(n, f"m{n}", arrays=shared, **({"plan": plan} if n == 8 else {})) for n in NODES
    ]
    sent = Requests.of(messages)
    assert sent is not None
    assert sent.shared == {ARRAYS: shared}
    assert sent.column("plan") == [None, plan, None]
    assert sent.ids == ["m7", "m8", "m9"]
    assert contents(sent) == contents(messages)
    assert [m.metadata.message_id for m in sent] == sent.ids


def test_what_was_not_sent_has_no_ids() -> None:
    sent = Requests.of([message(7), message(8)])
    assert sent is not None
    assert sent.ids == []
    assert Requests.of([]) is None
    assert Requests.of(table().select([])) is None


def test_a_table_is_itself_until_somebody_has_looked_at_its_messages() -> None:
    sent = table(arrays=model())
    assert Requests.of(sent) is sent
    sent[1].content["more"] = ConfigRecord({"x": 1})
    again = Requests.of(sent)
    assert again is not None
    assert again.column("more") == [None, {"x": 1}, None]


def test_records_are_put_for_all_or_for_some() -> None:
    sent = table(arrays=model(1))
    before = list(sent)
    sent.put("plan", ConfigRecord({"label": 1}), rows=[2])
    sent.put(ARRAYS, model(2), rows=[0])
    assert [sent.record("plan", row) for row in range(3)] == [None, None, {"label": 1}]
    values = [int(from_record(record)["n"]) for record in sent.column(ARRAYS)]
    assert values == [2, 1, 1]
    assert ["plan" in m.content for m in sent] == [False, False, True]
    assert "plan" not in before[2].content, "what was made before stays as it was"
    sent.put("plan", ConfigRecord({"label": 5}))
    assert [sent.record("plan", row)["label"] for row in range(3)] == [5, 5, 5]
    sent.put_column("plan", [None, None, None])
    assert not any("plan" in m.content for m in sent)


def test_some_rows_are_selected_in_any_order() -> None:
    sent = table(arrays=model())
    sent.put_column("own", [ConfigRecord({"n": node}) for node in NODES])
    sent.ids = ["a", "b", "c"]
    part = sent.select([2, 0])
    assert (list(part.nodes), part.ids) == ([9, 7], ["c", "a"])
    assert [m.content["own"]["n"] for m in part] == [9, 7]  # type: ignore[index]
    assert contents(part) == [contents(sent)[2], contents(sent)[0]]


def test_joined_tables_are_their_messages_one_after_the_other() -> None:
    shared, other = model(), model(1)
    parts = [
        Requests(message(7, arrays=shared, config=ConfigRecord({"c": 1})), [7, 8]),
        Requests(message(9, arrays=shared), []),
        Requests(message(9, arrays=shared, control=other), [9]),
    ]
    expected = [row for part in parts for row in contents(part)]
    joined = Requests.joined(parts)
    assert joined is not None
    assert contents(joined) == expected
    assert joined.shared == {ARRAYS: shared}, "what all share stays shared"
    assert Requests.joined([]) is None
    alone = table()
    assert Requests.joined([alone]) is alone


def test_bytes_of_requests_are_those_of_their_messages() -> None:
    sent = table(arrays=model(), config=ConfigRecord({"server-round": 3, "tag": "abc"}))
    assert sent.row_bytes() == [sizes_of(m.content)[0] for m in sent]
    sent.put("plan", ConfigRecord({"bytes": b"12345"}), rows=[1])
    sent.put_column(ARRAYS, [model(), None, model(1)])
    assert sent.row_bytes() == [sizes_of(m.content)[0] for m in sent]


def test_a_time_to_live_is_that_of_all_made_before_or_after() -> None:
    sent = table()
    first = sent[0]
    sent.expire_after(12.5)
    assert first.metadata.ttl == 12.5
    assert [m.metadata.ttl for m in sent.select([0, 1])] == [12.5, 12.5]


def replies(**more: Any) -> Replies:
    """Three clients' answers as one table."""
    given: dict[str, Any] = {
        "metrics": {"num-examples": [1, 2, 3], "loss": [0.5, None, 0.25], "all": [[1, 2], [], [3]]},
        "stacks": {
            ARRAYS: {"w": np.arange(18, dtype=np.float32).reshape(3, 2, 3), "n": np.arange(3)}
        },
        "records": {"support": [None, ConfigRecord({"payload": b"123"}), None]},
        **more,
    }
    return Replies(
        *(NODES, ["a", "b", "c"], ["x", "y", "zz"]), **given, note="torch", envelope=message()
    )


def test_a_table_of_replies_is_its_messages_and_back() -> None:
    made = list(replies())
    assert [m.metadata.src_node_id for m in made] == NODES
    assert [m.metadata.reply_to_message_id for m in made] == ["a", "b", "c"]
    assert [dict(m.content[CLIENT]) for m in made] == [  # type: ignore[call-overload]
        {CLIENT_KEY: name, NOTE: "torch"} for name in ("x", "y", "zz")
    ]
    assert ["loss" in m.content[METRICS] for m in made] == [True, False, True]
    assert ["support" in m.content for m in made] == [False, True, False]
    for row, single in enumerate(map(Replies.of, made)):
        assert (single.nodes, single.asked) == ([NODES[row]], [["a", "b", "c"][row]])
        assert single.clients == [["x", "y", "zz"][row]]
        assert single.faults == {}
        assert next(single.rows()).metrics == list(replies().rows())[row].metrics
        np.testing.assert_array_equal(single.arrays["w"][0], replies().arrays["w"][row])
        assert single.messages() == [made[row]]


def test_bytes_of_replies_are_those_of_their_messages() -> None:
    sizes = [sizes_of(reply.content)[0] for reply in replies()]
    assert replies().row_bytes() == sizes
    assert [Replies.of(reply).row_bytes() for reply in replies()] == [[size] for size in sizes]


def test_names_count_whatever_bears_them() -> None:
    long = "n" * 1000
    for content in (
        {METRICS: MetricRecord({long: 1})},
        {long: MetricRecord({"loss": 1.0})},
        {METRICS: MetricRecord({"loss": 1.0}), long: ConfigRecord()},
        {METRICS: MetricRecord({"loss": 1.0}), ARRAYS: to_record({long: np.zeros(1)})},
    ):
        reply = answer(message(message_id="a"), content)
        assert Replies.of(reply).name_bytes() == sizes_of(reply.content)[1] > 1000
    wide = replies(stacks={ARRAYS: {long: np.zeros((3, 1))}})
    assert wide.name_bytes() > 1000


def test_columns_are_taken_and_put_and_the_messages_follow() -> None:
    answers = replies()
    assert "support" in answers[1].content
    assert answers.take("support")[1] == {"payload": b"123"}
    assert answers.take("support") == [None, None, None]
    assert answers.take_metric("loss") == [0.5, None, 0.25]
    assert answers.take_metric("loss") is None
    answers.set_metric("num-examples", [4, 5, 6])
    answers.put(ARRAYS, {"w": np.ones((3, 1))})
    for row, reply in enumerate(answers):
        assert "support" not in reply.content
        assert reply.content[METRICS] == {"num-examples": 4 + row, "all": [[1, 2], [], [3]][row]}
        assert from_record(reply.content[ARRAYS])["w"].tolist() == [1.0]  # type: ignore[arg-type]
    answers.drop(ARRAYS)
    assert not answers.has(ARRAYS)
    assert not any(ARRAYS in reply.content for reply in answers)


def test_selected_rows_keep_all_that_is_known_of_them() -> None:
    answers = replies()
    answers.faults = {2: "odd"}
    answers.assignments = ["first", "second", "third"]
    part = answers.select([2, 1])
    assert (part.nodes, part.asked, part.clients) == ([9, 8], ["c", "b"], ["zz", "y"])
    assert (part.faults, part.assignments) == ({0: "odd"}, ["third", "second"])
    np.testing.assert_array_equal(part.arrays["n"], [2, 1])
    assert part.records["support"] == [{"payload": b"123"}, None][::-1]
    assert answers.without([]) is answers
    assert answers.without([0, 2]).nodes == [8]
    assert [m.content for m in part] == [m.content for m in (replies()[2], replies()[1])]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({METRICS: MetricRecord({"a": 1})}, None),
        ({}, "0 metric records instead of one"),
        ({METRICS: MetricRecord(), "more": MetricRecord()}, "2 metric records instead of one"),
    ],
)
def test_a_reply_has_one_record_of_metrics(content: dict[str, Any], fault: str | None) -> None:
    assert Replies.of(answer(message(), content)).faults.get(0) == fault


def test_the_only_model_may_be_called_as_its_app_likes() -> None:
    metrics = MetricRecord({"num-examples": 1})
    mine = Replies.of(answer(message(), {"weights": model(3), CONTROL: model(), METRICS: metrics}))
    assert mine.has(ARRAYS)
    assert mine.fitting(ARRAYS, LIKE) == {}
    assert int(mine.arrays["n"][0]) == 3
    two = Replies.of(answer(message(), {"a": model(), "b": model(), METRICS: metrics}))
    assert not two.has(ARRAYS), "nobody knows which"


@pytest.mark.parametrize("name", [3, b"x", [1], ""], ids=repr)
def test_a_name_that_is_no_text_is_none(name: Any) -> None:
    reply = answer(message(), {CLIENT: ConfigRecord({CLIENT_KEY: name}), METRICS: MetricRecord()})
    assert Replies.of(reply).clients == [""]


def odd(dtype: str, shape: tuple[int, ...], data: bytes = b"", stype: str = "numpy.ndarray") -> Any:
    arrays = {"w": Array(dtype, shape, stype, data), "n": Array(LIKE["n"])}
    return ArrayRecord(arrays)


HOSTILE = {
    "a shape of terabytes": odd("float32", (2**21, 2**21)),
    "a shape that overflows": odd("float32", (2**62, 2**62)),
    "a header of another shape": odd("float32", (2, 3), Array(np.zeros((4, 3), np.float32)).data),
    "another dtype": odd("float64", (2, 3), Array(np.zeros((2, 3))).data),
    "objects": odd("O", (2, 3)),
    "no bytes": odd("float32", (2, 3)),
    "a pickle": odd("float32", (2, 3), b"x", "pickle"),
    "other names": to_record({"v": LIKE["w"], "n": LIKE["n"]}),
    "no arrays": ConfigRecord({"w": 1}),
    "nothing": None,
}


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_arrays_that_do_not_fit_are_refused_and_their_rows_are_zero(
    record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared before anything is allocated by what they claim."""
    answers = replies(stacks={}, records={ARRAYS: [model(1), record, model(3)]})
    monkeypatch.setattr(Array, "numpy", lambda self: pytest.fail("read unchecked"))
    wrong = answers.fitting(ARRAYS, LIKE)
    assert list(wrong) == [1]
    assert wrong[1]
    assert answers.arrays["w"].shape == (3, 2, 3)
    assert answers.arrays["n"].tolist() == [1, 0, 3]
    assert answers.without(wrong).arrays["n"].tolist() == [1, 3]


def test_a_stack_that_does_not_fit_is_refused_in_all_rows() -> None:
    assert replies().fitting(ARRAYS, LIKE) == {}
    for like in ({"w": LIKE["w"]}, LIKE | {"n": np.zeros(2, np.int64)}, LIKE | {"w": LIKE["n"]}):
        assert list(replies().fitting(ARRAYS, like)) == [0, 1, 2]


def test_if_no_row_fits_nothing_is_stacked() -> None:
    answers = replies(stacks={}, records={ARRAYS: [None, None, None]})
    assert list(answers.fitting(ARRAYS, LIKE)) == [0, 1, 2]
    assert ARRAYS not in answers.stacks


def test_a_row_reads_as_its_message() -> None:
    first, second, _ = replies().rows()
    assert (first.node, second.metrics) == (7, {"num-examples": 2, "all": []})
    assert (second.has("support"), first.has("support"), first.has(ARRAYS)) == (True, False, True)
    assert second.config("support") == {"payload": b"123"}
    assert first.config("support") is first.config("nothing") is None
    np.testing.assert_array_equal(second.arrays(ARRAYS, LIKE)["w"], replies().arrays["w"][1])
    with pytest.raises(ValueError, match="other array names"):
        first.arrays(ARRAYS, {"v": LIKE["w"]})
    with pytest.raises(ValueError, match="0 array records"):
        first.arrays("nothing", LIKE)
    endless = replies(
        stacks={ARRAYS: {"w": np.full((3, 2, 3), np.inf, np.float32), "n": np.arange(3)}}
    )
    with pytest.raises(ValueError, match="w: values that are not finite"):
        next(endless.rows()).arrays(ARRAYS, LIKE)


def test_a_stream_is_read_once_and_as_it_comes() -> None:
    made: list[int] = []

    def coming() -> Any:
        for row in range(3):
            made.append(row)
            yield replies().select([row])

    def only_odd(part: Replies) -> Replies:
        return part.without([0] if part.nodes[0] % 2 else [])

    stream = iter(ReplyStream(coming()).through(only_odd))
    assert made == []
    assert next(stream).metadata.src_node_id == 8
    assert made == [0, 1]
    assert list(stream) == []


def test_whatever_a_grid_hands_out_is_tables_and_errors() -> None:
    error, reply = by_superlink(message(message_id="e")), replies()[0]
    arrived = Delivery.of([reply, error])
    assert [part.messages() for part in arrived.tables] == [[reply]]
    assert arrived.errors == [error]
    assert list(arrived) == [reply, error]
    assert Delivery.of(arrived) is arrived
    whole = replies()
    assert Delivery.of(whole).tables == [whole]
    assert [part.nodes for part in tables_in([error, reply])] == [[7]]
    assert tables_in(whole) == [whole]
    stream = ReplyStream([whole])
    assert tables_in(stream) == [whole]
