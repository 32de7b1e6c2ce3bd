"""State by the names of attributes: what is saved, and what it becomes again."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from forager.selectors.stateful import Stateful


class Inner(Stateful):
    remembers = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Everything(Stateful):
    remembers = (
        *("_last_turn", "times", "_seen", "rates", "inner", "rng"),
        *("done", "_model", "_votes", "nothing"),
    )

    def __init__(self) -> None:
        self._last_turn = 0
        self.times: dict[str, int] = {}
        self._seen: set[str] = set()
        self.rates = np.zeros(2)
        self.inner = Inner()
        self.rng = np.random.default_rng(1)
        self.done = False
        self._model: list[float] = []
        self._votes: Counter[str] = Counter()
        self.nothing: Any = None


def changed() -> Everything:
    made = Everything()
    made._last_turn, made.times, made._seen = 3, {"b": 2, "a": 1}, {"y", "x"}
    made.rates, made.inner.count, made.done = np.array([0.5, 1.5]), 7, True
    made._model, made._votes, made.nothing = [0.25], Counter(x=2), "something"
    made.rng.random(5)
    return made


def test_all_kinds_of_attributes_survive() -> None:
    before, after = changed(), Everything()
    after.load_state_dict(before.state_dict())
    assert (after._last_turn, after.done, after.nothing) == (3, True, "something")
    assert list(after.times) == ["b", "a"]
    assert after._seen == {"x", "y"}
    assert after.inner.count == 7
    assert type(after._votes) is Counter
    assert after._votes == {"x": 2}
    np.testing.assert_array_equal(after.rates, before.rates)
    assert after.rng.random() == before.rng.random()


def test_keys_are_as_in_the_files_and_plain() -> None:
    state = changed().state_dict()
    assert {"last-turn", "seen", "model", "votes"} <= state.keys()
    assert state["inner"] == {"count": 7}
    del state["rates"]
    assert json.loads(json.dumps(state))["seen"] == ["x", "y"]


def test_what_is_saved_does_not_change_with_its_owner() -> None:
    owner = changed()
    state = owner.state_dict()
    owner.times["c"] = 9
    owner._model.append(1.0)
    assert state["times"] == {"b": 2, "a": 1}
    assert state["model"] == [0.25]


def test_an_array_keeps_its_type_and_is_not_shared() -> None:
    owner, kept = Everything(), np.array([1, 2])
    owner.load_state_dict({"rates": kept})
    assert owner.rates.dtype == np.float64
    owner.rates[0] = 5
    assert kept[0] == 1


def test_what_an_older_version_did_not_save_stays() -> None:
    owner = changed()
    owner.load_state_dict({"last-turn": 1})
    assert (owner._last_turn, owner.inner.count) == (1, 7)


def test_what_cannot_be_of_its_type_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Everything().load_state_dict({"last-turn": "soon"})
