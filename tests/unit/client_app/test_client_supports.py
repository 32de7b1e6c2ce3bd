"""What a client tells of its important parameters, and what it remembers."""

from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.client_app.device.state import ClientState
from forager.client_app.side import task_side
from forager.core.config import read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import (
    ARRAYS,
    ASK_SUPPORT,
    CONFIG,
    PAYLOAD,
    ROUND,
    SIGNATURE,
    SIZE,
    SUPPORT,
)
from forager.core.wire.replies import Replies, Row
from forager.core.wire.supports import decode_signature
from forager.selectors.similarities.signatures import Hashing
from forager.strategies.similarities.support_similarity import SupportReader, parameter_shapes

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
KEYS = {
    "strategy": "ios-centred",
    "local-epochs": 1,
    "ios.share": 0.1,
    "num-clients": 4,
}


def context_of(keys, folder=""):
    node = {"partition-id": 1, "num-partitions": 4}
    return Context(1, 7, node | ({"state-dir": str(folder)} if folder else {}), RecordDict(), keys)


def model_of(keys, scale=1.0):
    arrays = read_arrays(load_task(read_config(keys).task_spec()).build_model())
    return to_record({name: np.asarray(scale * a, dtype=a.dtype) for name, a in arrays.items()})


def ask(kind, context, arrays=None, number=1):
    records = {CONFIG: ConfigRecord({ROUND: number, "steps": 0})}
    if arrays is not None:
        records[ARRAYS] = arrays
    message = Message(RecordDict(records), dst_node_id=7, message_type=kind)
    message.metadata.__dict__["_message_id"] = "asked"
    return answer_one(message, context)


def reader(keys, kind=SupportReader):
    made = kind(parameter_shapes(read_config(keys)))
    return SimpleNamespace(read=lambda reply: made.read(Row(Replies.of(reply), 0)))


def read(reply, keys=KEYS):
    return reader(keys).read(reply)


def test_supports_and_averages_survive_a_restart(tmp_path):
    lasting = context_of(KEYS)
    for number in (1, 2, 3):
        never_stopped = read(ask("train", lasting, model_of(KEYS, number), number))
    for number in (1, 2, 3):  # each time a new process with nothing but its folder
        reply = ask("train", context_of(KEYS, tmp_path), model_of(KEYS, number), number)
        restarted = read(reply)
    np.testing.assert_array_equal(restarted, never_stopped)
    forgetful = read(ask("train", context_of(KEYS), model_of(KEYS, 3), 3))
    assert not np.array_equal(forgetful, never_stopped)  # the average matters
    held = read(ask(ASK_SUPPORT, context_of(KEYS, tmp_path), number=3))
    np.testing.assert_array_equal(held, never_stopped)


def test_a_signature_is_told_and_the_support_only_when_asked_for():
    keys = KEYS | {"ios.signatures": True}
    context = context_of(keys)
    told = ask("train", context, model_of(keys)).content[SUPPORT]
    assert set(told) == {SIGNATURE}
    fetched = ask(ASK_SUPPORT, context)
    assert set(fetched.content[SUPPORT]) == {PAYLOAD}
    assert not any(isinstance(record, ArrayRecord) for record in fetched.content.values())
    support = read(fetched, keys)
    signed = decode_signature(told[SIGNATURE])
    np.testing.assert_array_equal(signed.signature, Hashing(128, seed=0).sign(support))
    assert signed.count == support.size


def test_who_is_asked_with_a_model_trains_and_tells_as_the_run_says():
    keys = KEYS | {"ios.signatures": True}
    reply = ask(ASK_SUPPORT, context_of(keys), model_of(keys))
    assert set(reply.content[SUPPORT]) == {SIGNATURE}
    whole = ask(ASK_SUPPORT, context_of(KEYS), model_of(KEYS))
    assert set(whole.content[SUPPORT]) == {PAYLOAD}


def test_a_client_that_has_not_trained_holds_no_support():
    reply = ask(ASK_SUPPORT, context_of(KEYS))
    assert reply.has_error()
    assert "holds no support" in reply.error.reason


def test_a_client_to_which_nothing_matters_trains_and_sends_no_support(monkeypatch):
    monkeypatch.setattr(
        "forager.client_app.hooks.supports.fisher_diagonals",
        lambda model, *_: np.zeros((1, sum(p.numel() for p in model.parameters())), np.float32),
    )
    reply = ask("train", context_of(KEYS), model_of(KEYS))
    assert not reply.has_error()
    assert ARRAYS in reply.content
    assert SUPPORT not in reply.content


def paper_support(told=None, **settings):
    """The support of a client of IOS, its own K, and its importance, in round 1."""
    keys = {**KEYS, "strategy": "ios", "ios.share": 0.0, **settings}
    context = context_of(keys)
    records = {CONFIG: ConfigRecord({ROUND: 1}), ARRAYS: model_of(keys)}
    records |= {} if told is None else {SUPPORT: ConfigRecord({SIZE: told})}
    message = Message(RecordDict(records), dst_node_id=7, message_type="train")
    message.metadata.__dict__["_message_id"] = "asked"
    reply = answer_one(message, context)
    row = ClientState(context)["importance"]
    return read(reply, keys), reply.content[SUPPORT][SIZE], row["average"]


def test_a_client_of_ios_reports_its_k_and_uses_the_one_it_is_told():
    """Algorithm 1: the fewest that cover 90 % of the mass, at most 20 % of the parameters."""
    support, own, importance = paper_support()
    mass = np.sort(importance.astype(np.float64))[::-1].cumsum()
    enough = int(np.searchsorted(mass, 0.9 * mass[-1] * (1 - 1e-9))) + 1
    assert own == len(support) == min(enough, round(0.2 * importance.size))
    told, still, _ = paper_support(told=17)
    assert (len(told), still) == (17, own)
    np.testing.assert_array_equal(told, np.sort(np.argsort(-importance, kind="stable")[:17]))


def test_the_stability_of_k_is_judged_by_parts_of_the_samples():
    """K, K + 1 or K + 2; K itself where none of them is stable enough (lines 6 to 9)."""
    _, own, _ = paper_support(**{"ios.coverage": 0.3})
    for rho in (0.01, 1.0):
        _, k, _ = paper_support(**{"ios.coverage": 0.3, "ios.stability": rho, "ios.resamples": 3})
        assert own <= k <= own + 2
    assert paper_support(**{"ios.coverage": 0.3, "ios.stability": 0.01})[1] == own


def test_two_parts_that_want_it_average_importance_once():
    keys = KEYS | {"client-selector": "support-diversity"}
    context, alone = context_of(keys), context_of(KEYS)
    for number in (1, 2):
        both = ask("train", context, model_of(keys), number).content[SUPPORT]
        one = ask("train", alone, model_of(KEYS), number).content[SUPPORT]
    assert set(both) == {PAYLOAD, SIGNATURE}
    assert both[PAYLOAD] == one[PAYLOAD]


def test_a_device_with_a_file_of_its_own_tells_what_it_holds(tmp_path):
    rng, file = np.random.default_rng(0), tmp_path / "mine.npz"
    np.savez(file, x_train=rng.random((40, 12)).astype(np.float32), y_train=np.arange(40) % 4)
    keys = KEYS | {"task": "npz", "data.path": "on the server only", "data.num-classes": 4}
    node = {"client-id": "camera-7", "data-path": str(file), "state-dir": str(tmp_path)}
    arrays = to_record(
        {"1.weight": np.zeros((4, 12), np.float32), "1.bias": np.zeros(4, np.float32)}
    )
    for model in (arrays, None):
        task_side.cache_clear()  # every message is a new process
        load_task.cache_clear()
        context = Context(1, 7, node, RecordDict(), keys)
        reply = ask("train" if model is not None else ASK_SUPPORT, context, model)
        assert not reply.has_error(), reply.error.reason
        assert set(reply.content[SUPPORT]) == {PAYLOAD}


@pytest.mark.parametrize(("share", "count"), [(1e-9, 1), (1.0, 650)])
def test_a_support_has_at_least_one_index_and_at_most_all(share, count):
    keys = KEYS | {"ios.share": share}
    assert read(ask("train", context_of(keys), model_of(keys)), keys).size == count
