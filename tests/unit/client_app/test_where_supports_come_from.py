"""Importance at the received model or after training, and changes with their signs."""

import numpy as np
import pytest
from forager.client_app.hooks import supports as hooks
from forager.client_app.side import task_side
from forager.core.config import read_config
from forager.core.learning.model_arrays import load_arrays
from forager.core.wire.arrays import flat_floats, from_record
from forager.core.wire.keys import ARRAYS, ASK_SUPPORT, PAYLOAD, SIGNATURE, SUPPORT
from forager.core.wire.signatures import decode_signature
from forager.selectors.similarities.index_overlap import choose_k, top_k_support
from forager.selectors.similarities.signatures import Hashing
from forager.selectors.similarities.signed_overlap import split_codes, top_k_changes
from forager.strategies.similarities.support_reader import (
    SignedSupportReader,
    SupportReader,
)
from test_client_supports import KEYS, ask, context_of, model_of, reader

SIGNED = KEYS | {"similarity": "signed-overlap"}


def flat(record):
    return flat_floats(from_record(record))


@pytest.fixture
def measured(monkeypatch):
    """The models that importance was measured at, as flat arrays, and what was found."""
    seen, plain = [], hooks.fisher_diagonals

    def spy(model, loss, arrays, data):
        found = plain(model, loss, arrays, data)
        seen.append((flat_floats(arrays[0]), found[0]))
        return found

    monkeypatch.setattr(hooks, "fisher_diagonals", spy)
    return seen


@pytest.mark.parametrize(
    ("keys", "received"),
    [
        ({}, True),
        ({"strategy": "ios"}, False),
    ],
    ids=str,
)
def test_importance_is_measured_where_the_run_says(measured, keys, received):
    keys = KEYS | keys
    arrays = model_of(keys)
    reply = ask("train", context_of(keys), arrays)
    ((at, importance),) = measured
    wanted = arrays if received else reply.content[ARRAYS]
    np.testing.assert_array_equal(at, flat(wanted))
    np.testing.assert_array_equal(reader(keys).read(reply), top_k_support(importance, 65))


@pytest.mark.parametrize(("strategy", "trained"), [("ios-centred", 0), ("ios", 1)])
def test_who_is_asked_trains_only_where_that_is_needed(monkeypatch, strategy, trained):
    keys = KEYS | {"strategy": strategy}
    trainer, calls = task_side(read_config(keys)).trainer, []
    plain = trainer.train
    monkeypatch.setattr(trainer, "train", lambda *given: calls.append(1) or plain(*given))
    reply = ask(ASK_SUPPORT, context_of(keys), model_of(keys))
    assert len(calls) == trained
    np.testing.assert_array_equal(
        reader(keys).read(reply), reader(keys).read(ask("train", context_of(keys), model_of(keys)))
    )


def test_the_paper_takes_as_many_as_cover_enough_and_others_a_usual_number(measured):
    keys = KEYS | {"strategy": "ios", "ios.share": 0.0, "ios.coverage": 0.5}
    paper = reader(keys).read(ask("train", context_of(keys), model_of(keys)))
    assert paper.size == choose_k(measured[0][1], 0.5, 162) < 162
    for more, count in (
        ({}, 162),  # a quarter of a small model
        ({"ios.most": 0.1}, 65),
        ({"model": "mlp", "net.hidden": 20}, 200),
        ({"model": "mlp", "net.hidden": 400}, round(0.05 * (64 * 400 + 400 + 400 * 10 + 10))),
    ):
        for similarity in ("centred-overlap", "signed-overlap"):
            keys = KEYS | {"ios.share": 0.0, "similarity": similarity} | more
            kind = SignedSupportReader if similarity == "signed-overlap" else SupportReader
            told = reader(keys, kind).read(ask("train", context_of(keys), model_of(keys)))
            assert told.size == count


def test_changes_are_those_of_the_update():
    arrays = model_of(SIGNED)
    reply = ask("train", context_of(SIGNED), arrays)
    codes = reader(SIGNED, SignedSupportReader).read(reply)
    update = flat(reply.content[ARRAYS]) - flat(arrays)
    np.testing.assert_array_equal(codes, top_k_changes(update, 65))
    assert set(split_codes(codes)[1].tolist()) == {-1, 1}


def test_changes_are_signed_and_told_in_full_when_asked_for(tmp_path):
    keys = SIGNED | {"ios.signatures": True}
    told = ask("train", context_of(keys, tmp_path), model_of(keys)).content[SUPPORT]
    assert set(told) == {SIGNATURE}
    fetched = ask(ASK_SUPPORT, context_of(keys, tmp_path))  # by another process
    assert set(fetched.content[SUPPORT]) == {PAYLOAD}
    codes = reader(keys, SignedSupportReader).read(fetched)
    signature = decode_signature(told[SIGNATURE])
    np.testing.assert_array_equal(signature.signature, Hashing(128, seed=0).sign_changes(codes))
    assert signature.count == codes.size
    nothing = ask(ASK_SUPPORT, context_of(keys))
    assert "holds no support" in nothing.error.reason


def test_who_changed_nothing_sends_no_support():
    keys = SIGNED | {"learning-rate": 1e-30}
    reply = ask("train", context_of(keys), model_of(keys))
    assert not reply.has_error()
    assert SUPPORT not in reply.content


@pytest.mark.parametrize(
    ("keys", "sign"),
    [
        ({"client-selector": "signed-diversity"}, "sign_changes"),
        ({"client-selector": "support-diversity"}, "sign"),
        ({**SIGNED, "client-selector": "support-diversity"}, "sign_changes"),
        ({**SIGNED, "client-selector": "signed-diversity"}, "sign_changes"),
    ],
    ids=str,
)
def test_diversity_is_by_signatures_of_what_clients_are_compared_by(monkeypatch, keys, sign):
    used = []
    for name in ("sign", "sign_changes"):
        plain = getattr(Hashing, name)
        monkeypatch.setattr(
            Hashing, name, lambda self, s, n=name, p=plain: used.append(n) or p(self, s)
        )
    keys = {"local-epochs": 1, "num-clients": 4, **keys}
    told = ask("train", context_of(keys), model_of(keys)).content[SUPPORT]
    assert used == [sign]
    assert set(told) == {SIGNATURE} | ({PAYLOAD} if "similarity" in keys else set())


def test_the_model_is_not_trained_on_from_what_importance_left_in_it():
    """The scratch model holds the received arrays afterwards; the reply those trained."""
    keys = KEYS
    reply = ask("train", context_of(keys), model_of(keys))
    plain = {"local-epochs": 1, "num-clients": 4}
    other = ask("train", context_of(plain), model_of(plain))
    np.testing.assert_array_equal(flat(reply.content[ARRAYS]), flat(other.content[ARRAYS]))
    load_arrays(task_side(read_config(keys)).trainer.model, from_record(reply.content[ARRAYS]))
