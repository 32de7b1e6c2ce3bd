"""A run's event log may be damaged or of another version: the report and the watcher read on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forager.core.log.events import EVENTS, Event, JudgedBy, ReplySeconds, Spread, as_events
from forager.server_app.run_folder import RunFolder
from forager.tools.report import page, story
from forager.tools.report.history import History
from forager.tools.report.watch import view
from fuzzing import fuzz, little_memory, spoilt
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

names = st.one_of(st.sampled_from(["a", "b", "0", "0.1"]), st.text(max_size=8))
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 50),
        st.integers(-(2**70), 2**70),
        st.floats(),
        names,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=4)),
    max_leaves=5,
)
reply_seconds = st.fixed_dictionaries(
    {"median": st.floats(), "slowest": st.dictionaries(names, st.floats(), max_size=3)}
)
spreads = st.fixed_dictionaries({}, optional=dict.fromkeys(["mean", "worst-10"], st.floats()))
judged_by = st.fixed_dictionaries(
    {"name": st.sampled_from(["accuracy", "mae", "loss", "bytes-down"])},
    optional={"higher-is-better": st.booleans(), "share": st.booleans()},
)
st.register_type_strategy(ReplySeconds, reply_seconds)
st.register_type_strategy(Spread, spreads)
st.register_type_strategy(JudgedBy, judged_by)


def field_values(name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    """Return what a field may hold: values of its type half of the time, small rounds mostly."""
    if name == "round":
        return st.one_of(st.integers(0, 5), values)
    if name == "config":
        return st.dictionaries(st.just("num-server-rounds"), values)
    if name in ("columns", "facts"):
        return st.dictionaries(names, values, max_size=4)
    declared: Any = field.annotation
    return st.one_of(st.from_type(declared), values)


def events_of(kind: type[Event]) -> st.SearchStrategy[dict[str, Any]]:
    """Return lines of a kind, with any of its fields."""
    fields = {
        field.alias or name: field_values(name, field) for name, field in kind.model_fields.items()
    }
    return st.fixed_dictionaries({"event": st.just(kind.name)}, optional=fields)


kinds = [events_of(kind) for kind in EVENTS.values()]
logs = st.lists(st.one_of(*kinds, st.just({"event": "unknown"}), st.just({})), max_size=8)


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    """Leave out the pictures, which take long; words and tables read the same events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "chapters", lambda history: ())
        yield


def read_on(log: list[dict[str, Any]]) -> None:
    """Tell a log in all ways."""
    history = History.from_events(log)
    assert story.summary(history)
    assert history.rounds_done >= 0
    assert page.render("run", {}, history)
    state = History()
    state.take(log)
    assert view.panel(state, "run", 100.0)
    assert view.line(state)
    assert view.ending(state)


@fuzz
@given(logs)
def test_events_of_any_content(log: list[dict[str, Any]]) -> None:
    read_on(log)


@fuzz
@given(logs)
def test_what_was_read_can_be_written_and_read_again(log: list[dict[str, Any]]) -> None:
    events = list(as_events(log))
    lines = [json.dumps(event.to_dict(), allow_nan=False) for event in events]
    assert [event.to_dict() for event in as_events(map(json.loads, lines))] == [
        event.to_dict() for event in events
    ]


@pytest.mark.parametrize("count", [2**70, 10**400, -1, 1e300])
@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_no_number_takes_memory(kind: type[Event], count: float) -> None:
    fields = {field.alias or name: count for name, field in kind.model_fields.items()}
    told = [{"event": kind.name, **fields}, {"event": kind.name, **fields, "round": 1}]
    read_on(told)  # imports and caches take their memory only once
    with little_memory(2**20):
        read_on(told)


def test_logs_with_any_damage(tmp_path: Path) -> None:
    lines = [{"event": "selected", "round": 1, "chosen": ["a"]}, {"event": "run-finished"}]
    honest = "".join(json.dumps(line) + "\n" for line in lines).encode()
    folder = RunFolder.create(tmp_path, "run")

    @fuzz
    @given(st.one_of(st.binary(max_size=100), spoilt(st.just(honest))))
    def read(data: bytes) -> None:
        folder.events_path.write_bytes(data)
        events = folder.read_events()
        assert all(isinstance(event, dict) for event in events)
        read_on(events)

    read()
