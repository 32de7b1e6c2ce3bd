"""Training and evaluation by changes: who is sent what, on a grid whose clients keep models."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, Notes, exchanged, failing, honest, never, small_model
from flwr.app import ConfigRecord, Context, Message, RecordDict
from forager.client_app.batch import ClientBatch
from forager.client_app.device.held_models import with_held_models
from forager.core.log.events import Exchanged
from forager.core.wire.arrays import from_record, sizes_of, to_record
from forager.core.wire.changes import BASE, CHANGE, TAG, tag_of
from forager.core.wire.keys import ARRAYS, CONFIG
from forager.core.wire.records import attach
from forager.core.wire.requests import Requests
from forager.server_app.post import Post
from forager.strategies.federation import ledger
from forager.strategies.federation.federation import Federation

KEYS = ["0", "1", "2"]


def model(number: int) -> dict[str, Any]:
    """A model that moves a little with its number."""
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(30, 20)).astype(np.float32)
    return {"weight": weight * np.float32(1 + 1e-3 * number), "count": np.array(number)}


class Keepers:
    """Clients that keep models as real ones do, and note which they have trained from."""

    def __init__(self) -> None:
        self.contexts = {key: Context(1, 2, {}, RecordDict(), {}) for key in KEYS}
        self.got: list[tuple[str, str]] = []

    def __call__(self, message: Message, key: str, look: int = 0) -> list[Message]:
        def handle(batch: ClientBatch) -> list[Message]:
            self.got.append((key, tag_of(batch.models[0])))
            whole = copy.copy(batch.requests[0])
            attach(whole, ARRAYS, to_record(batch.models[0]))
            return honest(whole, key)

        requests = Requests.of([message])
        assert requests is not None
        return list(with_held_models(handle)(ClientBatch(requests, [self.contexts[key]])))


class Scene:
    """A run that is sent models, one after the other."""

    def __init__(self, **settings: Any) -> None:
        self.clients = Keepers()
        self.grid = FakeGrid(KEYS, dict.fromkeys(KEYS, self.clients), wire=True)
        self.federation, self.notes = Federation(keep_models=True), Notes()
        self.federation.journal = self.notes
        self.federation.roster.identify(self.grid, 1.0)
        settings = {"deadline": 0.2, "poll": 0.002, **settings}
        self.post = Post(self.grid, self.federation, **settings)

    def send(
        self,
        *models: dict[str, Any],
        kind: str = "train",
        enough: int | None = None,
        to: Sequence[str] = KEYS,
    ) -> list[Message]:
        """Send each client its model, or all the same; return what was sent."""
        records = [to_record(each) for each in models]
        contents = [
            RecordDict({ARRAYS: each, CONFIG: ConfigRecord({"server-round": 1})})
            for each in records
        ]
        self._before = len(self.grid.sent)
        self.clients.got.clear()
        nodes = [node for node, key in self.grid.nodes.items() if key in to]
        messages = [
            Message(contents[place % len(contents)], dst_node_id=node, message_type=kind)
            for place, node in enumerate(nodes)
        ]
        exchanged(self.post, messages, enough=enough)
        return self.sent

    @property
    def sent(self) -> list[Message]:
        return self.grid.sent[self._before :]

    def forms(self) -> list[str]:
        return [form(message) for message in self.sent]

    @property
    def last(self) -> Exchanged:
        return self.notes.of(Exchanged)[-1]

    def behave(self, key: str, how: Callable[..., list[Message]]) -> None:
        self.grid.behaviours = {**self.grid.behaviours, key: how}


def form(message: Message) -> str:
    """How a message brings its model."""
    config = message.content.config_records[CONFIG]
    if ARRAYS in message.content:
        return "whole" if TAG in config else "untold"
    return "change" if BASE in config else "name"


def test_the_second_model_comes_as_a_change_and_the_same_again_by_name() -> None:
    scene = Scene()
    scene.send(model(1))
    assert scene.forms() == ["whole"] * 3
    whole = scene.last.bytes_down
    scene.send(model(2))
    assert scene.forms() == ["change"] * 3
    assert {tag for _, tag in scene.clients.got} == {tag_of(model(2))}
    assert scene.last.bytes_down < 0.8 * whole
    scene.send(model(2), kind="evaluate")
    assert scene.forms() == ["name"] * 3
    scene.send(model(3), kind="evaluate")
    scene.send(model(3))
    assert scene.forms() == ["name"] * 3
    assert [e.resent for e in scene.notes.of(Exchanged)][1:] == [0] * 4


def test_what_is_counted_is_what_was_sent() -> None:
    scene = Scene()
    scene.send(model(1))
    sent = scene.send(model(2))
    assert scene.last.bytes_down == sum(sizes_of(message.content)[0] for message in sent)
    size = sum(array.nbytes for array in model(2).values())
    change = sum(map(len, sent[0].content.config_records[CONFIG][CHANGE]))
    assert scene.last.bytes_spared == 3 * (size - change)


def test_messages_that_share_a_change_share_its_record() -> None:
    scene = Scene()
    scene.send(model(1))
    sent = scene.send(model(2))
    assert len({id(message.content.config_records[CONFIG]) for message in sent}) == 1


def test_what_layers_remember_is_whole_and_untouched() -> None:
    scene = Scene()
    scene.send(model(1))
    content = RecordDict({ARRAYS: to_record(model(2)), CONFIG: ConfigRecord({"server-round": 2})})
    node = next(iter(scene.grid.nodes))
    sent = scene.federation.assign(2, [Message(content, dst_node_id=node, message_type="train")])
    exchanged(scene.post, sent)
    assert form(scene.grid.sent[-1]) == "change"
    assert form(sent[0]) == "untold"
    assert tag_of(from_record(scene.federation.sent_model(node))) == tag_of(model(2))


def test_who_has_lost_its_model_is_sent_it_whole_in_the_same_round() -> None:
    scene = Scene()
    scene.send(model(1))
    scene.clients.contexts["1"].state.clear()
    scene.send(model(2))
    assert scene.forms() == ["change"] * 3 + ["whole"]
    assert sorted(key for key, _ in scene.clients.got) == KEYS
    assert {tag for _, tag in scene.clients.got} == {tag_of(model(2))}
    assert (scene.last.received, scene.last.resent) == (3, 1)
    size = sum(array.nbytes for array in model(2).values())
    change = sum(map(len, scene.sent[0].content.config_records[CONFIG][CHANGE]))
    assert scene.last.bytes_spared == 2 * (size - change), "all was sent again to the third"
    scene.send(model(3))
    assert scene.forms() == ["change"] * 3


def test_a_model_that_is_not_what_its_name_says_is_found_out_by_the_checksum() -> None:
    scene = Scene()
    scene.send(model(1))
    spoilt = model(1) | {"weight": model(1)["weight"] + np.float32(1)}
    scene.clients.contexts["1"].state["held-model"] = to_record(spoilt)
    scene.send(model(2))
    assert scene.forms() == ["change"] * 3 + ["whole"]
    assert {tag for _, tag in scene.clients.got} == {tag_of(model(2))}


@pytest.mark.parametrize("trouble", [failing, never])
def test_who_failed_or_was_late_is_sent_the_whole_model_next_time(trouble: Any) -> None:
    scene = Scene()
    scene.send(model(1))
    scene.behave("1", trouble)
    scene.send(model(2))
    scene.behave("1", scene.clients)
    scene.send(model(3))
    assert sorted(scene.forms()) == ["change", "change", "whole"]
    assert scene.last.resent == 0
    scene.send(model(4))
    assert scene.forms() == ["change"] * 3


def test_a_late_reply_tells_that_its_sender_holds_the_model() -> None:
    scene = Scene(deadline=30.0)
    waits = [True]
    scene.behave("1", lambda m, key, look: [] if waits[0] else scene.clients(m, key))
    scene.send(model(1), enough=2)
    assert scene.last.late == ["1"]
    waits[0] = False
    assert len(scene.post.late()) == 1
    scene.send(model(2))
    assert scene.forms() == ["change"] * 3
    assert scene.last.resent == 0


def test_who_answers_late_will_hold_what_it_was_sent_since() -> None:
    scene = Scene(deadline=30.0)
    scene.behave("1", never)
    scene.send(model(1), enough=2)
    (first,) = [m for m in scene.sent if m.metadata.dst_node_id == 501]
    scene.send(model(2), enough=2)

    def only_the_first(message: Message, key: str, look: int) -> list[Message]:
        replies = scene.clients(message, key)
        return replies if message.metadata.message_id == first.metadata.message_id else []

    scene.behave("1", only_the_first)
    assert len(scene.post.late()) == 1
    scene.behave("1", scene.clients)
    scene.send(model(3))
    assert scene.forms() == ["change"] * 3
    assert scene.last.resent == 0


def test_an_answer_to_a_later_question_outweighs_a_late_reply() -> None:
    scene = Scene(deadline=30.0)
    waits = [True]
    scene.behave("1", lambda m, key, look: [] if waits[0] else scene.clients(m, key))
    scene.send(model(1), enough=2)
    scene.federation.held.learn([501], tag_of(model(2)))
    waits[0] = False
    assert len(scene.post.late()) == 1
    assert scene.federation.held.of(501) == tag_of(model(2))


def test_every_client_gets_the_change_from_its_own_model() -> None:
    scene = Scene()
    scene.send(model(1), model(2), model(3))
    scene.send(model(4))
    assert scene.forms() == ["change"] * 3
    bases = [str(m.content.config_records[CONFIG][BASE]) for m in scene.sent]
    assert bases == [tag_of(model(number)) for number in (1, 2, 3)]
    scene.send(model(5), model(6), model(4))
    assert scene.forms() == ["change", "change", "name"]
    assert [tag for _, tag in scene.clients.got] == [tag_of(model(n)) for n in (5, 6, 4)]


def test_who_holds_a_model_that_the_server_has_not_kept_is_sent_all(monkeypatch) -> None:
    monkeypatch.setattr(ledger, "_FEWEST_STARTS", 1)
    monkeypatch.setattr(ledger, "_MOST_STARTS", 1)
    scene = Scene()
    scene.send(model(1), model(2), model(3))
    scene.send(model(4))
    assert sorted(scene.forms()) == ["change", "whole", "whole"]


def test_a_change_that_is_as_large_as_the_model_is_not_worth_it() -> None:
    scene = Scene()
    scene.send(model(1))
    rng = np.random.default_rng(2)
    other = model(1) | {
        "weight": rng.integers(0, 2**31, (30, 20), dtype=np.uint32).view(np.float32)
    }
    scene.send(other)
    assert scene.forms() == ["whole"] * 3


def test_a_buffered_round_sends_changes_and_the_whole_where_it_is_needed() -> None:
    scene = Scene(buffer=3, deadline=5.0)
    scene.send(model(1))
    scene.clients.contexts["1"].state.clear()
    scene.send(model(2))
    assert scene.forms() == ["change"] * 3 + ["whole"]
    assert (scene.last.received, scene.last.resent) == (3, 1)
    assert {tag for _, tag in scene.clients.got} == {tag_of(model(2))}


def test_a_client_may_lack_its_model_in_a_later_buffered_round() -> None:
    scene = Scene(buffer=2, deadline=5.0)
    scene.send(model(1))
    exchanged(scene.post, [])  # the third reply of the first round
    waits = [True]
    scene.behave("1", lambda m, key, look: [] if waits[0] else scene.clients(m, key))
    scene.clients.contexts["1"].state.clear()
    scene.send(model(2))
    assert len(scene.federation.busy) == 1
    waits[0] = False
    replies = exchanged(scene.post, [])
    assert len(replies) == 1
    assert scene.last.resent == 1
    assert scene.clients.got[-1] == ("1", tag_of(model(2)))


def test_models_of_rounds_that_are_over_are_not_kept_for_those_who_still_train() -> None:
    """With a buffer somebody trains all the time; every model ever sent stayed in memory."""
    scene = Scene(buffer=2, deadline=50.0)
    scene.send(model(1))
    exchanged(scene.post, [])
    scene.behave("1", never)
    scene.send(model(2))
    for number in range(3, 9):
        scene.send(model(number), to=["0", "2"])
    assert "1" in scene.federation.keys(scene.federation.busy)
    kept = [set(scene.federation.keys(form.spared)) for form in scene.post._forms]
    assert kept == [{"1"}, {"0", "2"}]


def test_without_the_setting_nothing_is_named() -> None:
    scene = Scene()
    scene.federation.held.every_message = False
    scene.send(small_model())
    scene.send(small_model(), kind="evaluate")
    assert scene.forms() == ["untold"] * 3
    assert not any(context.state for context in scene.clients.contexts.values())
