"""CosAge by the overlap of largest entries: what a client answers, and a run that goes by it."""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from forager.client_app.app import answer_one
from forager.core.wire.arrays import flat_change, from_record
from forager.core.wire.keys import ARRAYS, CONFIG, REFERENCE, ROUND, SIMILARITY, WANTS
from forager.core.wire.sparse import encode
from forager.tools.engine.local import run_local
from test_client_supports import context_of, model_of

KEYS = {"strategy": "cosage", "num-clients": 4, "summary.form": "index-overlap"}


def asked(keys, arrays, reference, kind):
    told = {ROUND: 2, WANTS: SIMILARITY, REFERENCE: reference, "steps": 0}
    records = RecordDict({CONFIG: ConfigRecord(told), ARRAYS: arrays})
    message = Message(records, dst_node_id=7, message_type=kind)
    message.metadata.__dict__["_message_id"] = "asked"
    return answer_one(message, context_of(keys))


def test_a_client_answers_with_the_share_of_largest_entries_in_common():
    arrays = model_of(KEYS)
    change = np.random.default_rng(0).normal(size=650).astype(np.float32)
    # A dense uplink shows the update; as many local steps as the proxy has make it the proxy.
    dense = KEYS | {"uplink": "dense", "local-steps": 4, "summary.batches": 4}
    trained = asked(dense, arrays, encode(change, 650), "train")
    update = flat_change(from_record(arrays), from_record(trained.content[ARRAYS]))
    largest = [set(np.argsort(-np.abs(each))[:162].tolist()) for each in (change, update)]
    wanted = len(largest[0] & largest[1]) / 162  # a quarter of a small model
    found = asked(dense, arrays, encode(change, 650), "query.summary")
    assert found.content["metrics"][SIMILARITY] == pytest.approx(wanted)
    assert trained.content["metrics"][SIMILARITY] == pytest.approx(wanted)


def test_a_run_chooses_by_it(tmp_path):
    own = {"num-server-rounds": 4, "num-clients": 8, "clients-per-round": 2}
    result = run_local({**KEYS, **own, "output-dir": str(tmp_path)})
    events = map(json.loads, (result.folder / "events.jsonl").read_text().splitlines())
    chosen = [e for e in events if e["event"] == "selected" and "other-scores" in e]
    scores = [score for event in chosen for score in event["scores"] + event["other-scores"]]
    assert len(scores) == 3 * 8
    assert all(0 <= score <= 1 for score in scores)
    assert len(set(scores)) > 8
