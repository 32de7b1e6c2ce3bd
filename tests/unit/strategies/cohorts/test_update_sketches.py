"""What Auxo's cohorts are found by where clients tell supports."""

import numpy as np
import pytest
from fakes import answer
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from forager.core.config import read_config
from forager.core.wire.keys import PAYLOAD, SUPPORT
from forager.core.wire.replies import Replies
from forager.core.wire.supports import encode_signed_support, encode_support
from forager.selectors.similarities.index_overlap import centred_overlap_matrix
from forager.selectors.similarities.signed_overlap import (
    signed_codes,
    signed_overlap_matrix,
    split_codes,
)
from forager.strategies.cohorts.update_sketches import (
    CentredSupportSignal,
    SignedSignal,
    SupportSignal,
    signal_of,
)

NOTHING = ArrayRecord()


def signal_by(similarity):
    keys = {"cohorts": "split-test", "similarity": similarity}
    return signal_of(read_config({**keys, "model": "mlp"}))


def reply(payload=None):
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    question.metadata.__dict__["_message_id"] = "asked"
    record = {} if payload is None else {SUPPORT: ConfigRecord({PAYLOAD: payload})}
    return Replies.of(answer(question, record))


def add(signal, cohort, key, replies):
    (row,), wrong = signal.of([NOTHING], replies)
    assert not wrong
    signal.add(cohort, key, row)


def cosines(rows):
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units @ units.T


def supports_of(signal, groups, seed=0):
    """Half of the indices are everyone's, the others mostly those of the group."""
    rng = np.random.default_rng(seed)
    own = [rng.permutation(np.arange(300, signal.reader.size))[:250] for _ in set(groups)]
    return [np.union1d(np.arange(300), rng.choice(own[g], 200, replace=False)) for g in groups]


@pytest.mark.parametrize(
    ("similarity", "kind"),
    [
        ("centred-overlap", CentredSupportSignal),
        ("index-overlap", SupportSignal),
        ("signed-overlap", SignedSignal),
    ],
)
def test_each_similarity_has_its_signal(similarity, kind):
    assert type(signal_by(similarity)) is kind


def test_what_everyone_has_in_common_is_subtracted_over_all_cohorts():
    signal = signal_by("centred-overlap")
    groups = [0, 0, 0, 1, 1, 1]
    supports = supports_of(signal, groups)
    signal.begin()
    for i, (group, support) in enumerate(zip(groups, supports, strict=True)):
        payload = encode_support(support, signal.reader.size, signal.reader.tag)
        add(signal, f"0.{group}", str(i), reply(payload))
    taken = [signal.take("0.0"), signal.take("0.1")]
    assert [each.keys for each in taken] == [["0", "1", "2"], ["3", "4", "5"]]
    rows = np.concatenate([each.signals for each in taken])
    np.testing.assert_allclose(cosines(rows), centred_overlap_matrix(supports), atol=0.1)
    assert len(signal.take("0.0").keys) == 0
    signal.begin()
    assert len(signal.take("0.0").keys) == 0  # nobody at all


@pytest.mark.parametrize("count", [50, 500])
def test_long_supports_count_as_much_as_short_ones(count):
    signal = signal_by("index-overlap")
    support = np.arange(signal.reader.size)[:count]
    signal.begin()
    payload = encode_support(support, signal.reader.size, signal.reader.tag)
    add(signal, "0", "a", reply(payload))
    assert np.linalg.norm(signal.take("0").signals) == pytest.approx(1.0, rel=0.1)


def test_signs_are_part_of_the_signal():
    signal, rng = signal_by("signed-overlap"), np.random.default_rng(0)
    indices = np.sort(rng.choice(signal.reader.size, 200, replace=False))
    clients = [signed_codes(indices, signs) for signs in ([1] * 200, [1] * 150 + [-1] * 50)]
    clients.append(signed_codes(indices, [-1] * 200))
    signal.begin()
    for i, codes in enumerate(clients):
        payload = encode_signed_support(*split_codes(codes), signal.reader.size, signal.reader.tag)
        add(signal, "0", str(i), reply(payload))
    rows = signal.take("0").signals
    np.testing.assert_allclose(cosines(rows), signed_overlap_matrix(clients), atol=0.1)


@pytest.mark.parametrize("similarity", ["centred-overlap", "signed-overlap"])
def test_no_support_points_nowhere_and_a_bad_one_is_refused(similarity):
    signal = signal_by(similarity)
    signal.begin()
    add(signal, "0", "a", reply())
    for payload in (b"rubbish", encode_support(np.array([1]), 5, 0)):
        _, wrong = signal.of([NOTHING], reply(payload))
        assert list(wrong) == [0]
    taken = signal.take("0")
    assert taken.keys == ["a"]
    assert not taken.signals.any()
