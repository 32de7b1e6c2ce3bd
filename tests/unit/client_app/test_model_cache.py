"""The model that a client keeps: what is kept when, and what it makes of a change."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.batch import ClientBatch
from forager.client_app.device.held_models import received_models, with_held_models
from forager.core.wire.arrays import to_record
from forager.core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, encode_shortest, tag_of
from forager.core.wire.keys import ARRAYS, CONFIG
from forager.core.wire.replies import Replies
from forager.core.wire.requests import Requests

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
OLD = {"w": np.linspace(1, 2, 500, dtype=np.float32), "n": np.array(1)}
NEW = {"w": OLD["w"] * np.float32(1.001), "n": np.array(2)}


def message(arrays: Any = None, **said: Any) -> Message:
    content = RecordDict({CONFIG: ConfigRecord(said)})
    if arrays is not None:
        content[ARRAYS] = to_record(arrays)
    return Message(content, dst_node_id=2, message_type="train")


def context() -> Context:
    return Context(1, 2, {"partition-id": 3}, RecordDict(), {})


def change(**other: Any) -> Message:
    said = {TAG: tag_of(NEW), BASE: tag_of(OLD), CHANGE: encode_shortest(OLD, NEW)}
    return message(**{**said, **other})


def batch_of(messages: list[Message], contexts: list[Context]) -> ClientBatch:
    requests = Requests.of(messages)
    assert requests is not None
    return ClientBatch(requests, contexts)


def trained(batch: ClientBatch) -> Replies:
    """Answer with the tag of the model that came."""
    batch.records[CONFIG] = [ConfigRecord({"got": tag_of(model)}) for model in batch.models]
    return batch.replies()


def answer(messages: list[Message], contexts: list[Context]) -> list[Message]:
    return list(with_held_models(trained)(batch_of(messages, contexts)))


def got(reply: Message) -> str:
    if CONFIG in reply.content:
        return str(reply.content.config_records[CONFIG]["got"])
    assert LACKS_BASE in reply.content.metric_records["metrics"]
    return "lacks"


def asked(mine: Context, *messages: Message) -> list[str]:
    return [got(answer([each], [mine])[0]) for each in messages]


def test_what_is_named_is_kept_and_changed() -> None:
    mine = context()
    told = asked(mine, message(OLD, **{TAG: tag_of(OLD)}), change(), message(**{TAG: tag_of(NEW)}))
    assert told == [tag_of(OLD), tag_of(NEW), tag_of(NEW)]


def test_a_model_without_a_name_is_not_kept() -> None:
    mine = context()
    assert asked(mine, message(OLD)) == [tag_of(OLD)]
    assert not mine.state


@pytest.mark.parametrize(
    "spoilt",
    [
        {BASE: "another"},
        {TAG: "another"},
        {CHANGE: [b"rubbish"]},
        {CHANGE: [b"two", b"parts"]},
        {CHANGE: "text"},
        {CHANGE: encode_shortest(NEW, OLD | {"n": np.array(5)})},
    ],
)
def test_a_change_that_does_not_lead_to_its_checksum_is_not_trained_from(spoilt: Any) -> None:
    mine = context()
    first = message(OLD, **{TAG: tag_of(OLD)})
    assert asked(mine, first, change(**spoilt)) == [tag_of(OLD), "lacks"]
    # What it holds is as it was: the right change still works.
    assert asked(mine, change()) == [tag_of(NEW)]


def test_who_holds_nothing_says_so() -> None:
    assert asked(context(), change(), message(**{TAG: "any"})) == ["lacks", "lacks"]


def test_only_those_who_lack_it_are_left_out() -> None:
    having, lacking = context(), context()
    asked(having, message(OLD, **{TAG: tag_of(OLD)}))
    messages = [change(), change(), message(NEW)]
    replies = answer(messages, [lacking, having, context()])
    assert [got(reply) for reply in replies] == [tag_of(NEW), tag_of(NEW), "lacks"]


def test_what_was_sent_is_not_changed() -> None:
    mine, sent = context(), change()
    asked(mine, message(OLD, **{TAG: tag_of(OLD)}), sent)
    assert ARRAYS not in sent.content


def test_clients_of_one_process_share_the_changed_model() -> None:
    clients = [context(), context()]
    for each in clients:
        asked(each, message(OLD, **{TAG: tag_of(OLD)}))
    first, second = received_models(batch_of([change(), change()], clients))
    assert first is second
    assert first is not None
    np.testing.assert_array_equal(first.difference, NEW["w"] - OLD["w"])


def test_a_message_that_fails_leaves_the_held_model() -> None:
    mine = context()
    asked(mine, message(OLD, **{TAG: tag_of(OLD)}))

    def broken(batch: ClientBatch) -> list[Message]:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        with_held_models(broken)(batch_of([change()], [mine]))
    assert asked(mine, message(**{TAG: tag_of(OLD)})) == [tag_of(OLD)]


def test_a_message_without_model_and_name_is_for_the_handler_to_refuse() -> None:
    def refusing(batch: ClientBatch) -> list[Message]:
        return [Message(Error(2, "no model"), reply_to=each) for each in batch.requests]

    (reply,) = with_held_models(refusing)(batch_of([message()], [context()]))
    assert reply.error.reason == "no model"
