"""No reply whatever stops a round, by any method: it is used or set aside, the others count.

Real clients answer; one of them then changes, adds and removes records of every reply it sends.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.client_app import app
from forager.client_app.batch import ClientBatch
from forager.core.wire import keys as names
from forager.core.wire.arrays import to_record
from forager.tools.engine.local import run_local
from fuzzing import NUMBERS, SCALARS, fuzz, lists_of, spoilt
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDS = [names.ARRAYS, names.METRICS, names.CLIENT, names.SPARSE, names.CONTROL, names.CORESET]
RECORDS += [names.AFFINITY, names.SUPPORT, names.PLAN, names.ESTIMATE, "more"]
ENTRIES = [names.NUM_EXAMPLES, names.TRAIN_LOSS, names.SECONDS, names.CLIENT_KEY, names.PAYLOAD]
ENTRIES += [names.SIMILARITY, names.LOSS, names.LOSSES, names.HISTOGRAM, names.SIGNATURE]
ENTRIES += ["round", "size", "clean", "velocity", "stored", "capacity", "arrived", "kept"]
ENTRIES += ["cohorts", "rewards", "indices", "known", "serial", "age", "lacks-base"]

METHODS: dict[str, dict[str, Any]] = {
    "mean": {"fraction-evaluate": 1.0, "data.client-test-share": 0.2},
    "median": {"aggregator": "median"},
    "krum": {"aggregator": "krum"},
    "q-fedavg": {"aggregator": "qfedavg"},
    "top-k": {"uplink": "top-k"},
    "scaffold": {"objective": "scaffold"},
    "cosage": {"strategy": "cosage"},
    "piggyback": {"strategy": "cosage", "summary.mode": "piggyback"},
    "oort": {"client-selector": "oort"},
    "support-diversity": {"client-selector": "support-diversity"},
    "power-of-choice": {"client-selector": "power-of-choice"},
    "trusted": {"strategy": "trusted", "coreset.first-round": 0},
    "ode-balanced": {"strategy": "ode-balanced"},
    "split-test": {"strategy": "split-test"},
    "auxo": {
        **{"strategy": "auxo", "auxo.first-clustering": 1},
        "auxo.first-split": 1,
    },
    "ifca": {"cohorts": "ifca"},
    "cfl": {"cohorts": "cfl"},
    "flexcfl": {"cohorts": "flexcfl"},
    "fl-hc": {"cohorts": "fl-hc", "cohort.joint-rounds": 1},
    "cosine": {"cohorts": "similarity", "similarity": "cosine", "ios.first-round": 1},
    "centred-overlap": {"strategy": "ios-centred", "ios.first-round": 1},
    "signatures": {"strategy": "ios-centred", "ios.first-round": 1, "ios.signatures": True},
    "signed-overlap": {
        "cohorts": "similarity",
        "similarity": "signed-overlap",
        "ios.first-round": 1,
    },
    "oracle": {"cohorts": "similarity", "similarity": "oracle", "ios.first-round": 1},
    "cluster-oracle": {"client-selector": "cluster-oracle"},
    "neighbours": {"cohorts": "neighbours", "similarity": "centred-overlap"},
    "neighbours-signed": {
        "cohorts": "neighbours",
        "similarity": "centred-overlap",
        "ios.signatures": True,
    },
    "local-dp": {"privacy": "local-dp"},
    "central-dp": {"privacy": "central-dp"},
}
BAD = "3"

array_bytes = st.one_of(
    st.binary(max_size=60), spoilt(st.just(to_record({"w": np.zeros(10, np.float32)})["w"].data))
)
arrays = st.builds(
    Array,
    st.sampled_from(["float32", "int64", "O", "floaty"]),
    st.sampled_from([(10, 64), (10,), (3,), (2**31 - 1,)]),
    st.sampled_from(["numpy.ndarray", "pickle"]),
    array_bytes,
)
array_records = st.dictionaries(
    st.sampled_from(["1.weight", "1.bias", "estimate", "x"]), arrays, max_size=3
).map(ArrayRecord)
config_records = st.dictionaries(st.sampled_from(ENTRIES), lists_of(SCALARS), max_size=6).map(
    ConfigRecord
)
metric_values = st.one_of(
    NUMBERS,
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12),
    st.lists(st.floats(), max_size=12),
)
metric_records = st.dictionaries(st.sampled_from(ENTRIES), metric_values, max_size=6).map(
    MetricRecord
)
# A record in place of another, none, or entries of one that stays: lies that are nearly true.
edits = st.one_of(
    st.none(),
    array_records,
    config_records,
    metric_records,
    st.tuples(st.sampled_from(ENTRIES), st.one_of(metric_values, lists_of(SCALARS))),
)
changes = st.dictionaries(st.sampled_from(RECORDS), edits, min_size=1, max_size=4)


def changed(reply: Message, change: dict[str, Any]) -> Message:
    content = dict(reply.content)
    for name, edit in change.items():
        if edit is None:
            content.pop(name, None)
        elif not isinstance(edit, tuple):
            content[name] = edit
        elif isinstance(record := content.get(name), MetricRecord | ConfigRecord):
            try:
                content[name] = type(record)({**record, edit[0]: edit[1]})
            except TypeError:  # not what such a record can hold: it could not be sent
                continue
    reply.content = RecordDict(content)
    return reply


def lying(honest: app.Handler, change: dict[str, Any]) -> app.Handler:
    def handle(batch: ClientBatch) -> list[Message]:
        replies = list(honest(batch))
        return [
            changed(reply, change) if key == BAD and reply.has_content() else reply
            for key, reply in zip(batch.keys, replies, strict=True)
        ]

    return handle


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("method", METHODS)
def test_a_reply_of_any_records(
    method: str, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "num-clients": 5,
        "num-server-rounds": 2,
        "local-steps": 1,
        "fraction-train": 1.0,
        "round.give-up-after": 0.01,  # a round that has to be tried again fails the test
        "local.check-wire": True,
        "report": False,
        "checkpoint.every": 1,
        "data.cache-dir": cache,
        "output-dir": str(tmp_path),
    }

    @settings(fuzz, max_examples=math.ceil(fuzz.max_examples / 60))
    @given(changes)
    def survives(change: dict[str, Any]) -> None:
        with monkeypatch.context() as patch, tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            for kind, honest in app.HANDLERS.items():
                patch.setitem(app.HANDLERS, kind, lying(honest, change))
            result = run_local({**config, **METHODS[method], "output-dir": folder})
        assert result.reason == "completed"
        assert len([row for row in result.rounds if row["round"] > 0]) == 2

    survives()
