"""Asking clients before they are chosen: models sent whole or as what changed, answers checked."""

from typing import Any

import numpy as np
import pytest
from fakes import Arrays, FakeGrid, Notes, answer, never
from flwr.app import ConfigRecord, Message, MetricRecord
from forager.core.log.events import Quarantined
from forager.core.wire.arrays import to_record
from forager.core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG
from forager.core.wire.keys import (
    ARRAYS,
    CONFIG,
    HISTOGRAM,
    LOSS,
    METRICS,
    REFERENCE,
    ROUND,
    SIMILARITY,
    SUMMARY,
    WANTS,
)
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.questions import Questions

KEYS = [str(i) for i in range(4)]


def saying(**metrics: Any) -> Any:
    """A client that answers with these metrics."""

    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        return [answer(message, {METRICS: MetricRecord(metrics)})]

    return behave


def model(change: float = 0.0) -> Arrays:
    """A model of which few entries change."""
    weights = np.linspace(-1, 1, 1000, dtype=np.float32)
    weights[:5] += np.float32(change)
    return {"w": weights}


def difference(after: float, before: float) -> Arrays:
    return {"w": model(after)["w"] - model(before)["w"]}


class Asked:
    """Questions to a few clients, and what they were sent in the last round."""

    def __init__(self, grid: FakeGrid, **settings: Any) -> None:
        self.grid, self.questions = grid, Questions(**settings)
        self.federation, self.notes = Federation(), Notes()
        self.federation.journal = self.notes
        self.federation.nodes(grid)

    def ask(
        self, wants: str, number: int = 1, arrays: Arrays | None = None, reference: Any = None
    ) -> dict[str, Any]:
        self.grid.sent.clear()
        record = to_record(model() if arrays is None else arrays)
        nodes = list(self.grid.nodes)
        found = self.questions.ask(
            self.federation, self.grid, nodes, wants, number, record, reference
        )
        return {self.grid.nodes[node]: value for node, value in found.items()}

    def sent(self) -> dict[str, tuple[bool, dict[str, Any]]]:
        """Whether each client was sent a model, and the settings it was sent, of the last time."""
        return {
            self.grid.nodes[message.metadata.dst_node_id]: (
                ARRAYS in message.content,
                dict(message.content.config_records[CONFIG]),
            )
            for message in self.grid.of_kind(SUMMARY)
        }


def everyone(behaviour: Any, **others: Any) -> FakeGrid:
    return FakeGrid(KEYS, dict.fromkeys(KEYS, behaviour) | others)


@pytest.mark.parametrize(
    ("wants", "good", "bad"),
    [
        (SIMILARITY, 0.25, [1.5, -1.5, float("nan"), [0.1]]),
        (LOSS, 0.25, [-0.1, float("nan"), float("inf"), [0.1]]),
        (HISTOGRAM, [1.0, 2.0], [[1.0, -2.0], [float("nan")], 3.0]),
    ],
)
def test_answers_that_make_no_sense_are_set_aside(wants: str, good: Any, bad: list[Any]) -> None:
    for lie in [*bad, None]:
        wrong = saying(x=1) if lie is None else saying(**{wants: lie})
        asked = Asked(everyone(saying(**{wants: good}), **{"2": wrong}))
        assert asked.ask(wants, 3) == {"0": good, "1": good, "3": good}
        (event,) = asked.notes.of(Quarantined)
        assert (event.round, event.client) == (3, "2")
        assert wants in event.reason
        assert dict(asked.federation.strikes) == {"2": 1}


def test_the_printed_form_of_the_similarity_has_no_bound() -> None:
    asked = Asked(everyone(saying(similarity=7.5)), bounded=False)
    assert asked.ask(SIMILARITY) == dict.fromkeys(KEYS, 7.5)
    asked = Asked(everyone(saying(similarity=float("inf"))), bounded=False)
    assert asked.ask(SIMILARITY) == {}


def test_two_records_of_metrics_are_no_answer() -> None:
    def double(message: Message, key: str, look: int = 0) -> list[Message]:
        records = {METRICS: MetricRecord({"loss": 1.0}), "more": MetricRecord({"loss": 2.0})}
        return [answer(message, records)]

    asked = Asked(everyone(saying(loss=1.0), **{"1": double}))
    assert list(asked.ask(LOSS)) == ["0", "2", "3"]
    assert len(asked.notes.of(Quarantined)) == 1


def test_who_does_not_answer_is_left_out_and_not_held_to_blame() -> None:
    asked = Asked(everyone(saying(loss=1.0), **{"1": never}))
    assert list(asked.ask(LOSS)) == ["0", "2", "3"]
    assert asked.notes.events == []


def test_a_question_for_labels_needs_no_model() -> None:
    asked = Asked(everyone(saying(histogram=[1.0])))
    asked.ask(HISTOGRAM, 2)
    assert asked.sent() == {key: (False, {ROUND: 2, WANTS: HISTOGRAM}) for key in KEYS}


def test_who_holds_the_last_model_is_sent_only_what_changed() -> None:
    asked = Asked(everyone(saying(loss=1.0), **{"3": never}))
    asked.ask(LOSS, 1, model(0.0))
    first = asked.sent()
    assert all(whole and BASE not in settings for whole, settings in first.values())
    asked.grid.behaviours = dict.fromkeys(KEYS, saying(loss=1.0))
    asked.ask(LOSS, 3, model(0.5))
    second = asked.sent()
    assert {key: whole for key, (whole, _) in second.items()} == {
        **dict.fromkeys("012", False),
        "3": True,
    }
    for key in "012":
        settings = second[key][1]
        assert settings[BASE] == first[key][1][TAG]
        assert CHANGE in settings
        assert REFERENCE not in settings
        assert settings[TAG] == second["3"][1][TAG]


@pytest.mark.parametrize("keep_models", [False, True])
def test_who_was_silent_is_sent_the_next_model_whole(keep_models: bool) -> None:
    asked = Asked(everyone(saying(loss=1.0)))
    asked.federation = Federation(keep_models=keep_models)
    asked.federation.nodes(asked.grid)
    asked.ask(LOSS, 1, model(0.0))
    asked.grid.behaviours = asked.grid.behaviours | {"3": never}
    asked.ask(LOSS, 2, model(0.0))
    asked.grid.behaviours = dict.fromkeys(KEYS, saying(loss=1.0))
    asked.ask(LOSS, 4, model(0.5))  # in round 3 it would rest
    whole = {key: whole for key, (whole, _) in asked.sent().items()}
    assert whole == {**dict.fromkeys("012", False), "3": True}  # who knows what it still holds


def test_what_changed_stands_for_the_update_that_a_similarity_is_relative_to() -> None:
    asked = Asked(everyone(saying(similarity=0.5)))
    asked.ask(SIMILARITY, 1, model(0.0), difference(0.0, 1.0))
    assert all(REFERENCE in settings for _, settings in asked.sent().values())
    asked.ask(SIMILARITY, 2, model(0.5), difference(0.5, 0.0))
    assert all(REFERENCE not in settings for _, settings in asked.sent().values())
    asked.ask(SIMILARITY, 3, model(0.5), difference(0.5, 0.0))  # the same model, tried again
    assert all(REFERENCE in settings for _, settings in asked.sent().values())


def test_a_change_of_all_entries_is_shorter_than_the_model_with_the_same_update() -> None:
    asked = Asked(everyone(saying(similarity=0.5)))
    before, after = (np.full(1000, value, dtype=np.float32) for value in (1.0, 2.0))
    asked.ask(SIMILARITY, 1, {"w": before}, {"w": before})
    asked.ask(SIMILARITY, 2, {"w": after}, {"w": after - before})
    assert all(CHANGE in told and REFERENCE not in told for _, told in asked.sent().values())


def test_who_has_lost_the_model_is_sent_it_whole_at_once() -> None:
    def forgetful(message: Message, key: str, look: int = 0) -> list[Message]:
        lost = ARRAYS not in message.content
        return saying(**({LACKS_BASE: 1} if lost else {"loss": 2.0}))(message, key)

    asked = Asked(everyone(saying(loss=1.0), **{"2": forgetful}))
    asked.ask(LOSS, 1, model(0.0))
    assert asked.ask(LOSS, 2, model(0.5)) == {"0": 1.0, "1": 1.0, "2": 2.0, "3": 1.0}
    to_forgetful = [
        ARRAYS in message.content
        for message in asked.grid.of_kind(SUMMARY)
        if asked.grid.nodes[message.metadata.dst_node_id] == "2"
    ]
    assert to_forgetful == [False, True]
    assert asked.notes.of(Quarantined) == []


def test_who_always_says_that_it_lacks_the_model_is_asked_twice_at_most() -> None:
    asked = Asked(everyone(saying(loss=1.0), **{"2": saying(**{LACKS_BASE: 1})}))
    assert "2" not in asked.ask(LOSS, 1)
    assert len(asked.grid.of_kind(SUMMARY)) == len(KEYS) + 1
    assert [event.client for event in asked.notes.of(Quarantined)] == ["2"]


def test_a_change_that_is_no_shorter_than_the_model_is_not_sent() -> None:
    asked = Asked(everyone(saying(loss=1.0)))
    rng = np.random.default_rng(0)
    asked.ask(LOSS, 1, {"w": rng.normal(size=1000).astype(np.float32)})
    asked.ask(LOSS, 2, {"w": rng.normal(size=1000).astype(np.float32)})
    assert all(whole for whole, _ in asked.sent().values())


def test_clients_need_keep_nothing_if_models_are_sent_again() -> None:
    asked = Asked(everyone(saying(loss=1.0)), resend=True)
    for number in (1, 2):
        asked.ask(LOSS, number, model(number))
        for whole, settings in asked.sent().values():
            assert whole
            assert settings == {ROUND: number, WANTS: LOSS}


def test_a_question_is_no_record_that_clients_could_spoil_for_others() -> None:
    """Records are shared among messages, not what is added to them."""
    asked = Asked(everyone(saying(loss=1.0)))
    asked.federation.run = "monday"
    asked.ask(LOSS, 1)
    records = [message.content.config_records[CONFIG] for message in asked.grid.of_kind(SUMMARY)]
    assert all(isinstance(record, ConfigRecord) for record in records)
    assert all(record["run"] == "monday" for record in records)
