"""What makes clients alike: replies read, others refused by name, supports fetched if needed."""

import logging
import re

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    honest_records,
    listening_to,
    one_round,
    row_of,
)
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.config import read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.log.events import Quarantined, SimilarityFound
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import HISTOGRAM, METRICS, PAYLOAD, SIGNATURE, SUPPORT
from forager.core.wire.supports import (
    MalformedSupport,
    OtherModel,
    encode_signature,
    encode_signed_support,
    encode_support,
    model_tag,
)
from forager.selectors.cohorts.similarity_clusters import similarity_clusters
from forager.selectors.similarities.index_overlap import centred_overlap_matrix, overlap_matrix
from forager.selectors.similarities.signatures import Hashing
from forager.selectors.similarities.signed_overlap import (
    signed_codes,
    signed_overlap_matrix,
    split_codes,
)
from forager.strategies.build import build_strategy
from forager.strategies.cohorts.base import Scene
from forager.strategies.cohorts.similarity import SimilarityRule
from forager.strategies.federation.federation import silent
from forager.strategies.similarities.client_similarity import (
    MOST_DRAWN,
    Oracle,
    client_similarity,
    matrix_event,
)
from forager.strategies.similarities.support_similarity import (
    CentredOverlap,
    IndexOverlap,
    SignatureSimilarity,
    SignedOverlap,
    SignedSupportReader,
    SupportReader,
)

SHAPES = {"weight": (30, 30), "bias": (100,)}
SIZE, TAG = 1000, model_tag(SHAPES)
HASHES, BANDS = 64, 32
NOTHING = ArrayRecord()


def question():
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    message.metadata.__dict__["_message_id"] = "asked"
    return message


def reply(entry, payload):
    return row_of(answer(question(), {SUPPORT: ConfigRecord({entry: payload})}))


def support_of(group, seed, k=100):
    """Mostly the group's own indices, some at random."""
    rng = np.random.default_rng([group, seed])
    own = np.random.default_rng(group).permutation(SIZE)[:k]
    return np.union1d(own[: k - 10], rng.choice(SIZE, 10, replace=False))


def sent(support, tag=TAG, size=SIZE):
    return reply(PAYLOAD, encode_support(support, size, tag))


def signed(support, tag=TAG, size=SIZE):
    signature = Hashing(HASHES).sign(support)
    return reply(SIGNATURE, encode_signature(signature, support.size, size, tag))


@pytest.fixture
def similarity():
    return SignatureSimilarity(IndexOverlap(SupportReader(SHAPES)), HASHES, BANDS)


@pytest.fixture
def supports():
    return {f"client-{i}": support_of(i % 2, i) for i in range(6)}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({"tag": TAG ^ 1}, "expected model"), ({"size": SIZE + 1}, f"with {SIZE}")],
)
def test_other_architectures_and_versions_are_refused(similarity, changed, expected):
    support = support_of(0, 0)
    with pytest.raises(OtherModel, match=expected):
        similarity.hear("a", signed(support, **changed), NOTHING)
    plain = CentredOverlap(SupportReader(SHAPES))
    with pytest.raises(OtherModel, match=expected):
        plain.hear("a", sent(support, **changed), NOTHING)
    assert not similarity.told
    assert not plain.told


@pytest.mark.parametrize("bad", [b"", b"FRGS", "text"])
def test_what_is_no_signature_is_refused(similarity, bad):
    with pytest.raises(MalformedSupport):
        similarity.hear("a", reply(SIGNATURE, bad), NOTHING)
    with pytest.raises(MalformedSupport, match="no signature"):
        similarity.hear("a", reply("else", b""), NOTHING)


def test_a_signature_of_another_length_is_refused(similarity):
    signature = Hashing(HASHES // 2).sign(support_of(0, 0))
    payload = encode_signature(signature, 100, SIZE, TAG)
    with pytest.raises(ValueError, match="signature: expected 64"):
        similarity.hear("a", reply(SIGNATURE, payload), NOTHING)
    assert not similarity.told


def model_of(config):
    return to_record(read_arrays(load_task(config.task_spec()).build_model()))


def telling(support):
    """A client that trains honestly, and adds a record as its support."""

    def behave(message, key, look=0):
        if message.metadata.message_type != "train":
            return []
        records = honest_records(message, key)
        return [answer(message, records | ({} if support is None else {SUPPORT: support}))]

    return behave


COMPARED = [{"strategy": "ios-centred"}, {"cohorts": "neighbours", "similarity": "centred-overlap"}]
compared = pytest.mark.parametrize("keys", COMPARED, ids=["similarity", "neighbours"])


@compared
@pytest.mark.parametrize("signatures", [False, True])
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (ConfigRecord({PAYLOAD: encode_support(support_of(0, 0), SIZE, TAG)}), "is of model"),
        (ConfigRecord({PAYLOAD: b"rubbish"}), "support"),
        (ConfigRecord({"else": 1}), "no s.* in the reply"),
        (to_record({"x": np.ones(3)}), "no s.* in the reply"),
    ],
    ids=["another model", "rubbish", "nothing", "another record"],
)
def test_who_is_refused_is_named_and_its_reply_not_used(keys, signatures, record, reason):
    config = read_config({**keys, "fraction-train": 1.0, "ios.signatures": signatures})
    strategy, start = build_strategy(config), model_of(config)
    notes, clients = listening_to(strategy), [str(i) for i in range(4)]
    behaviours = dict.fromkeys(clients, telling(None))
    got, _ = one_round(strategy, start, FakeGrid(clients, {**behaviours, "3": telling(record)}))
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (1, "3")
    assert re.search(reason, event.reason), event.reason
    assert dict(strategy.federation.strikes) == {"3": 1}
    without = FakeGrid(clients, {**behaviours, "3": lambda *_: []})
    wanted, _ = one_round(build_strategy(config), start, without)
    assert_same(got, wanted)


@compared
@pytest.mark.parametrize("signatures", [False, True])
def test_a_reply_without_a_support_is_used_like_any_other(keys, signatures):
    """Nothing may matter to a client: then it is compared with nobody."""
    config = read_config({**keys, "fraction-train": 1.0, "ios.signatures": signatures})
    strategy = build_strategy(config)
    notes, grid = listening_to(strategy), FakeGrid("0123", dict.fromkeys("0123", telling(None)))
    got, _ = one_round(strategy, model_of(config), grid)
    plain = build_strategy(read_config({"fraction-train": 1.0}))
    wanted, _ = one_round(plain, model_of(config), FakeGrid("0123"))
    assert_same(got, wanted)
    assert notes.of(Quarantined) == []


def test_candidates_are_fetched_and_scored_exactly_others_estimated(similarity, supports):
    keys = list(supports)
    for key, support in supports.items():
        similarity.hear(key, signed(support), NOTHING)
    alone = np.arange(900, 1000)  # overlaps with nobody
    similarity.hear("alone", signed(alone), NOTHING)
    assert similarity.missing([*keys, "alone"]) == keys
    estimates = similarity.matrix(keys)
    for key in keys:
        similarity.hear(key, sent(supports[key]), NOTHING)
    assert similarity.missing([*keys, "alone"]) == []
    exact = overlap_matrix(supports.values())
    np.testing.assert_array_equal(similarity.matrix(keys), exact)
    assert 0 < np.abs(estimates - exact).max() < 0.25
    everyone = similarity.matrix([*keys, "alone"])
    np.testing.assert_array_equal(everyone[:6, :6], exact)
    account = similarity.account(4, [*keys, "alone"])
    assert (account.round, account.signatures, account.pairs) == (4, 7, 21)
    assert account.fetched == keys
    assert 6 <= account.candidate_pairs < 21
    assert similarity.account(5, keys).fetched == []


def test_a_support_is_kept_only_while_it_is_what_was_signed(similarity, supports):
    a, b, *_ = (key for key in supports if int(key[-1]) % 2 == 0)
    for key in (a, b):
        similarity.hear(key, signed(supports[key]), NOTHING)
        similarity.hear(key, sent(supports[key]), NOTHING)
    similarity.hear(a, signed(supports[a]), NOTHING)  # the same again
    assert similarity.missing([a, b]) == []
    similarity.hear(a, signed(support_of(0, 99)), NOTHING)
    assert similarity.missing([a, b]) == [a]


def test_a_support_that_nobody_signed_is_not_taken(similarity):
    similarity.hear("a", sent(support_of(0, 0)), NOTHING)
    assert not similarity.supports


def test_state_survives(similarity, supports):
    for key, support in supports.items():
        similarity.hear(key, signed(support), NOTHING)
    similarity.hear("client-0", sent(supports["client-0"]), NOTHING)
    again = SignatureSimilarity(IndexOverlap(SupportReader(SHAPES)), HASHES, BANDS)
    again.load_state_dict(similarity.state_dict())
    keys = list(supports)
    assert again.missing(keys) == similarity.missing(keys)
    np.testing.assert_array_equal(again.matrix(keys), similarity.matrix(keys))


def test_no_more_clients_are_drawn_than_fit_a_picture():
    keys = [str(i) for i in range(MOST_DRAWN + 50)]
    shown = matrix_event(3, keys, np.eye(len(keys)), dict.fromkeys(keys, "0"))
    assert (shown.round, shown.clients) == (3, keys[:MOST_DRAWN])
    assert {len(row) for row in shown.matrix} == {MOST_DRAWN}
    assert set(shown.labels) == set(keys[:MOST_DRAWN])


def rule_that_knows(supports, **keys):
    rule = SimilarityRule(read_config({"strategy": "ios-centred", **keys}))
    rule.similarity = CentredOverlap(SupportReader(SHAPES))
    for key, support in supports.items():
        rule.similarity.hear(key, sent(support), NOTHING)
        rule.fresh[key] = 2
    return rule


def scene_of(keys, note=silent):
    return Scene(2, list(keys), {"0": NOTHING}, {"0": 1}, True, lambda *_: {}, note)


def test_only_those_are_asked_that_never_reported_or_not_since_the_last_clustering(supports):
    rule, asked = rule_that_knows(supports, **{"ios.first-round": 2, "ios.every": 5}), []
    one, other, *_ = supports
    rule.fresh[one] = 3
    del rule.fresh[other]

    def ask(keys, *_):
        asked.append(list(keys))
        return {}

    rule.regroup(Scene(7, list(supports), {"0": NOTHING}, {"0": 1}, True, ask, silent))
    assert asked[0] == [key for key in supports if key != one]


def never_settling(monkeypatch):
    monkeypatch.setattr(
        "forager.strategies.cohorts.similarity.similarity_clusters",
        lambda matrix, seed: similarity_clusters(matrix, seed=seed, iterations=2),
    )


def test_clusters_that_do_not_converge_are_one_cohort_and_a_warning(monkeypatch, caplog, supports):
    never_settling(monkeypatch)
    rule, seen = rule_that_knows(supports), Notes()
    with caplog.at_level(logging.WARNING, "forager"):
        regrouping = rule.regroup(scene_of(supports, seen))
    assert list(regrouping) == ["1.0"]
    assert "clustering did not" in caplog.text
    assert rule.report()["converged"] is False
    assert [type(event) for event in seen.events] == [SimilarityFound]


def test_cohorts_that_were_found_stay_if_the_next_clustering_does_not_converge(
    monkeypatch, caplog, supports
):
    rule, seen = rule_that_knows(supports, **{"ios.every": 1}), Notes()
    found = rule.regroup(scene_of(supports))
    assert len(found) == 2
    places = rule.place(scene_of(supports))
    never_settling(monkeypatch)
    with caplog.at_level(logging.WARNING, "forager"):
        assert rule.regroup(scene_of(supports, seen)) is None
    assert rule.place(scene_of(supports)) == places
    assert "clustering did not settle: cohorts stay" in caplog.text
    assert (rule.report()["converged"], rule.report()["clusters"]) == (False, 2)
    assert seen.events == []


def test_one_client_stays_alone_and_identical_clients_together(supports):
    one = {"client-0": supports["client-0"]}
    assert rule_that_knows(one).regroup(scene_of(one)) is None
    same = dict.fromkeys(supports, supports["client-0"])
    regrouping = rule_that_knows(same).regroup(scene_of(same))
    assert list(regrouping) == ["1.0"]


@pytest.mark.parametrize("lie", [[1], [1] * 9, [], [0, 0, 0], [1e300, 1, 1], [-1, 1, 1]], ids=str)
def test_a_histogram_that_cannot_be_compared_is_refused_whoever_comes_first(lie):
    oracle = Oracle(labels=3)

    def hear(key, counts):
        told = answer(question(), {METRICS: MetricRecord({HISTOGRAM: counts})})
        oracle.hear(key, row_of(told), NOTHING)

    with pytest.raises(ValueError, match="histogram"):
        hear("liar", [float(n) for n in lie])
    hear("a", [1, 2, 3])
    hear("b", [0, 0, 3])
    assert oracle.matrix(list(oracle.told)).shape == (2, 2)


def sent_changes(codes, tag=TAG, size=SIZE):
    return reply(PAYLOAD, encode_signed_support(*split_codes(codes), size, tag))


def test_supports_are_compared_by_what_sets_them_apart(supports):
    plain, centred = IndexOverlap(SupportReader(SHAPES)), CentredOverlap(SupportReader(SHAPES))
    for each in (plain, centred):
        for key, support in supports.items():
            each.hear(key, sent(support), NOTHING)
    keys = list(supports)
    np.testing.assert_array_equal(plain.matrix(keys), overlap_matrix(supports.values()))
    np.testing.assert_array_equal(centred.matrix(keys), centred_overlap_matrix(supports.values()))
    assert not plain.values
    assert not centred.values
    assert set(centred.collected()["supports"]) == set(keys)


@pytest.mark.parametrize("signatures", [False, True])
def test_changes_are_compared_with_their_signs_and_not_kept(signatures):
    config = read_config(
        {"strategy": "ios-centred", "similarity": "signed-overlap", "ios.signatures": signatures}
    )
    similarity = client_similarity(config)
    size, tag = similarity.reader.size, similarity.reader.tag
    indices = np.arange(0, size, 4)
    turned = np.where(np.arange(indices.size) % 3, 1, -1)
    clients = {
        "a": signed_codes(indices, np.ones(indices.size)),
        "b": signed_codes(indices, turned),
        "c": signed_codes(indices, -turned),
    }
    hashing = Hashing(128)
    for key, codes in clients.items():
        if signatures:
            payload = encode_signature(hashing.sign_changes(codes), codes.size, size, tag)
            similarity.hear(key, reply(SIGNATURE, payload), NOTHING)
    if signatures:
        assert similarity.missing(list(clients)) == ["a", "b"]  # "c" shares no band with them
    for key in similarity.missing(list(clients)) if signatures else clients:
        similarity.hear(key, sent_changes(clients[key], tag, size), NOTHING)
    exact, found = signed_overlap_matrix(clients.values()), similarity.matrix(list(clients))
    assert exact[0, 1] > 0.3 > 0 > exact[0, 2]
    assert found[0, 1] == exact[0, 1]
    np.testing.assert_allclose(found, exact, atol=0.25)
    assert similarity.values  # a sign is a part of a value
    assert similarity.collected() == {}


def test_supports_with_signs_and_without_are_not_mixed_up():
    plain, signs = CentredOverlap(SupportReader(SHAPES)), SignedOverlap(SignedSupportReader(SHAPES))
    with pytest.raises(MalformedSupport, match="starts with"):
        signs.hear("a", sent(support_of(0, 0)), NOTHING)
    with pytest.raises(MalformedSupport, match="starts with"):
        plain.hear("a", sent_changes(signed_codes([1, 2], [1, -1])), NOTHING)
    with pytest.raises(OtherModel):
        signs.hear("a", sent_changes(signed_codes([1, 2], [1, -1]), TAG ^ 1), NOTHING)
    assert not plain.told
    assert not signs.told


def test_all_clients_are_told_the_mean_of_their_k() -> None:
    similarity = client_similarity(read_config({"strategy": "ios"}))
    assert isinstance(similarity, IndexOverlap)
    size, tag = similarity.reader.size, similarity.reader.tag
    assert similarity.size() == 0
    question = Message(RecordDict({}), dst_node_id=1, message_type="train")
    for key, k in {"a": 10, "b": 20, "c": 60}.items():
        sent = {PAYLOAD: encode_support(np.arange(k), size, tag), "k": k}
        reply = answer(question, {SUPPORT: ConfigRecord(sent)})
        similarity.hear(key, row_of(reply), ArrayRecord())
    assert similarity.size() == 30
    other = client_similarity(read_config({"strategy": "ios"}))
    other.load_state_dict(similarity.state_dict())
    assert other.size() == 30
    for k in (0, size + 1, 2.5):
        sent = {PAYLOAD: encode_support(np.arange(5), size, tag), "k": k}
        row = row_of(answer(question, {SUPPORT: ConfigRecord(sent)}))
        with pytest.raises(MalformedSupport, match="K = "):
            similarity.hear("d", row, ArrayRecord())
