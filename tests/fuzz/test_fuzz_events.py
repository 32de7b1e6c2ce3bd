"""A run's event log may be damaged or of another version: the report and the watcher read on."""

import json
from pathlib import Path
from typing import Any

from forager.server_app.run_folder import RunFolder
from forager.tools.report import story
from forager.tools.report.history import History
from forager.tools.report.takers import TAKERS
from fuzzing import fuzz, spoilt
from hypothesis import given
from hypothesis import strategies as st

KEYS = ["round", "time", "phase", "chosen", "kind", "sent", "received", "failed", "late", "delta"]
KEYS += ["bytes-down", "bytes-up", "seconds", "client", "reason", "metrics", "where", "accuracy"]
KEYS += ["loss", "rounds", "epsilon-most", "config", "strategy", "clients", "ages", "available"]

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 50),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=5,
)
events = st.dictionaries(st.sampled_from(KEYS), values, max_size=8).flatmap(
    lambda fields: st.sampled_from([*TAKERS, "unknown"]).map(lambda name: {"event": name, **fields})
)


@fuzz
@given(st.lists(events, max_size=8))
def test_events_of_any_content(told: list[dict[str, Any]]) -> None:
    history = History.from_events(told)
    assert story.summary(history)
    assert history.rounds_done >= 0


def test_logs_with_any_damage(tmp_path: Path) -> None:
    lines = [{"event": "selected", "round": 1, "chosen": ["a"]}, {"event": "run-finished"}]
    honest = "".join(json.dumps(line) + "\n" for line in lines).encode()
    folder = RunFolder.create(tmp_path, "run")

    @fuzz
    @given(st.one_of(st.binary(max_size=100), spoilt(st.just(honest))))
    def read(data: bytes) -> None:
        folder.events_path.write_bytes(data)
        assert all(isinstance(event, dict) for event in folder.read_events())
        History.from_events(folder.read_events())

    read()
