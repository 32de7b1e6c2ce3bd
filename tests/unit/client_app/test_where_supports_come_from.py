"""Importance at the received model or after training, and changes with their signs."""

import numpy as np
import pytest
from forager.client_app.hooks import supports as hooks
from forager.client_app.side import task_side
from forager.core.config import read_config
from forager.core.learning.job import UNUSED, batch_plans, batch_seed
from forager.core.learning.model_arrays import load_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import flat_floats, from_record
from forager.core.wire.keys import ARRAYS, ASK_SUPPORT, PAYLOAD, SIGNATURE, SUPPORT
from forager.core.wire.supports import decode_signature
from forager.selectors.similarities.index_overlap import choose_k, top_k_support
from forager.selectors.similarities.signatures import Hashing
from forager.selectors.similarities.signed_overlap import split_codes, top_k_changes
from forager.strategies.similarities.support_similarity import (
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
        ({"ios.at": "received"}, True),
        ({"ios.at": "trained"}, False),
        ({"strategy": "ios", "ios.at": "trained"}, False),
        ({"strategy": "ios", "ios.at": "received"}, True),
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


@pytest.mark.parametrize(("at", "trained"), [("received", 0), ("trained", 1), ("training", 1)])
def test_who_is_asked_trains_only_where_that_is_needed(monkeypatch, at, trained):
    keys = KEYS | {"ios.at": at}
    trainer, calls = task_side(read_config(keys)).trainer, []
    plain = trainer.train
    monkeypatch.setattr(trainer, "train", lambda *given: calls.append(1) or plain(*given))
    reply = ask(ASK_SUPPORT, context_of(keys), model_of(keys))
    assert len(calls) == trained
    np.testing.assert_array_equal(
        reader(keys).read(reply), reader(keys).read(ask("train", context_of(keys), model_of(keys)))
    )


def test_the_paper_takes_as_many_as_cover_enough_and_others_a_usual_number(measured):
    keys = KEYS | {"strategy": "ios", "ios.at": "trained", "ios.share": 0.0, "ios.coverage": 0.5}
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


def squares_of_steps(keys, arrays, number):
    """Train a softmax regression by plain loops; return the mean squared gradient of each step."""
    config = read_config(keys)
    data = load_task(config.task_spec()).client_data(1, 4).train
    x, y = data.x.flatten(1).double().numpy(), data.y.numpy()
    weight, bias = (a.astype(np.float64) for a in from_record(arrays).values())
    seed = batch_seed(config.seed, "1", number)
    (plan,) = batch_plans([len(y)], config.batch_size, config.local_epochs, 0, [seed])
    steps, moved = [], [np.zeros_like(weight), np.zeros_like(bias)]
    for row in plan:
        own = [int(position) for position in row if position != UNUSED]
        scores = x[own] @ weight.T + bias
        delta = np.exp(scores - scores.max(1, keepdims=True))
        delta /= delta.sum(1, keepdims=True)
        delta[np.arange(len(own)), y[own]] -= 1
        pairs = zip(delta, x[own], strict=True)
        each = [np.concatenate([np.outer(d, xs).ravel(), d]) for d, xs in pairs]
        steps.append(np.square(each).mean(0))
        gradients = [delta.T @ x[own] / len(own), delta.mean(0)]
        moved = [config.momentum * m + g for m, g in zip(moved, gradients, strict=True)]
        weight, bias = (
            weight - config.learning_rate * moved[0],
            bias - config.learning_rate * moved[1],
        )
    return np.array(steps)


def test_importance_is_accumulated_over_local_training_and_averaged_over_rounds():
    """IOS, section 3.1: the mean over the local batches, then the EMA over rounds from 0."""
    keys = KEYS | {"strategy": "ios", "local-epochs": 3, "momentum": 0.9, "weight-decay": 0.0}
    context, average = context_of(keys), 0.0
    for number in (1, 2, 3):
        arrays = model_of(keys, number)
        told = reader(keys).read(ask("train", context, arrays, number))
        steps = squares_of_steps(keys, arrays, number)
        assert len(steps) > 5
        average = 0.8 * average + 0.2 * steps.mean(0)
        wanted = np.sort(np.argsort(-average, kind="stable")[:65])
        np.testing.assert_array_equal(told, wanted)
    after = np.argsort(-steps[-1], kind="stable")[:65]
    assert set(after) != set(told.tolist())  # one step would have said something else


def test_k_is_stable_if_every_rth_step_says_the_same(monkeypatch):
    keys = KEYS | {"strategy": "ios", "ios.share": 0.0, "local-epochs": 4}
    keys |= {"ios.stability": 0.99, "ios.resamples": 3, "ios.coverage": 0.5}
    monkeypatch.setattr(hooks, "PAST", 0.0)
    seen, plain = [], hooks.choose_k
    monkeypatch.setattr(hooks, "choose_k", lambda *given: seen.append(given) or plain(*given))
    arrays = model_of(keys)
    ask("train", context_of(keys), arrays)
    ((importance, coverage, most, parts, target),) = seen
    steps = squares_of_steps(keys | {"momentum": read_config(keys).momentum}, arrays, 1)
    wanted = [steps[part::3].sum(0) / len(steps) for part in range(3)]
    np.testing.assert_allclose(parts, wanted, rtol=1e-3, atol=1e-8)
    np.testing.assert_allclose(importance, np.sum(wanted, axis=0), rtol=1e-3, atol=1e-8)
    assert (coverage, most, target) == (0.5, 130, 0.99)


def test_of_fewer_steps_than_parts_the_others_are_the_whole(monkeypatch):
    keys = KEYS | {"strategy": "ios", "ios.share": 0.0, "local-steps": 1}
    keys |= {"ios.stability": 0.99, "ios.resamples": 3}
    monkeypatch.setattr(hooks, "PAST", 0.0)
    seen, plain = [], hooks.choose_k
    monkeypatch.setattr(hooks, "choose_k", lambda *given: seen.append(given) or plain(*given))
    ask("train", context_of(keys), model_of(keys))
    importance, _, _, parts, _ = seen[0]
    np.testing.assert_array_equal(parts, [importance] * 3)


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
    keys = KEYS | {"ios.at": "received"}
    reply = ask("train", context_of(keys), model_of(keys))
    plain = {"local-epochs": 1, "num-clients": 4}
    other = ask("train", context_of(plain), model_of(plain))
    np.testing.assert_array_equal(flat(reply.content[ARRAYS]), flat(other.content[ARRAYS]))
    load_arrays(task_side(read_config(keys)).trainer.model, from_record(reply.content[ARRAYS]))
