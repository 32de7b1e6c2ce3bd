"""Clients that gather in cohorts, on the local engine: planted groups are found."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from forager.benchmarks.attacks import fake_affinity
from forager.client_app import app
from forager.core.config import ConfigError, read_config
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS, ASK_UPDATE, CLIENT, IDENTIFY
from forager.tools.engine import local_grid
from forager.tools.engine.local import run_local
from sklearn.metrics import adjusted_rand_score

GROUPS = 4


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def planted(tmp_path, cache):
    """Five clients in each of four groups whose labels mean different things."""
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "round.give-up-after": 5.0,
        "data.cache-dir": cache,
        "num-server-rounds": 9,
        "num-clients": 20,
        "clients-per-round": 20,
        "partition": "iid",
        "local-epochs": 5,
        "groups.kind": "label-permutation",
        "groups.count": GROUPS,
        "cohort.number": GROUPS,
        "cohort.joint-rounds": 4,
        "split-test.first-split": 4,
        "split-test.min-participants": 3,
        "auxo.first-clustering": 2,
        "auxo.first-split": 4,
        "auxo.alpha": 0.5,
        "evaluate-every": 9,
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def cohorts_of(result):
    where = {}
    for event in events(result, "cohorts"):
        where |= event["moved"]
    return where


@pytest.mark.parametrize(
    "rule", ["split-test", "auxo", "ifca", "cfl", "flexcfl", "fl-hc", "similarity"]
)
def test_every_rule_finds_planted_groups(planted, rule, monkeypatch):
    also = {"similarity": "centred-overlap"} if rule == "similarity" else {}
    # CFL splits in two at a time, and only near a common optimum.
    monkeypatch.setattr("forager.strategies.cohorts.cfl._MEAN", 0.7)
    # Auxo's clients explore, and need some rounds to come back.
    more = {"num-server-rounds": 15} if rule == "auxo" else {}
    result = run_local({**planted, **also, **more, "cohorts": rule})
    assert result.reason == "completed"
    assert not any(e["failed"] for e in events(result, "exchange"))
    where = cohorts_of(result)
    assert len(where) == 20
    truth = [int(key) % GROUPS for key in where]
    assert adjusted_rand_score(truth, list(where.values())) > 0.9
    models = sorted(path.name for path in result.folder.glob("model-*.safetensors"))
    assert len(models) == GROUPS


@pytest.mark.parametrize("rule", ["split-test", "auxo"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_without_groups_auxo_does_not_split(planted, rule, partition):
    more = {"cohorts": rule, "groups.kind": "none", "partition": partition}
    result = run_local({**planted, **more})
    assert not events(result, "regrouped")
    if rule == "split-test":
        said = events(result, "cohorts")[-1]["reasons"]["0"]
        assert "of the variance is within" in said


def test_the_preset_splits_in_a_small_run(tmp_path, cache):
    """Ten clients, five of them per round, ten rounds, and nothing set but the groups."""
    keys = {"strategy": "split-test", "num-clients": 10, "clients-per-round": 5, "partition": "iid"}
    keys |= {"groups.kind": "rotation", "groups.count": 2, "num-server-rounds": 10}
    result = run_local({**keys, "output-dir": str(tmp_path), "data.cache-dir": cache})
    where = cohorts_of(result)
    assert adjusted_rand_score([int(key) % 2 for key in where], [*where.values()]) == 1.0
    (split,) = events(result, "regrouped")
    assert split["round"] <= 5


def test_one_part_is_never_split(planted):
    result = run_local({**planted, "cohorts": "split-test", "split-test.parts": 1})
    assert result.reason == "completed"
    assert not events(result, "regrouped")


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("rule", ["split-test", "ifca", "cfl", "flexcfl", "fl-hc"])
def test_fewer_clients_than_cohorts(planted, rule, clients):
    few = {"num-clients": clients, "clients-per-round": clients, "num-server-rounds": 6}
    few |= {"split-test.min-participants": 1, "local-epochs": 1, "groups.kind": "none"}
    result = run_local({**planted, **few, "cohorts": rule})
    assert result.reason == "completed"
    assert set(cohorts_of(result)) == {str(client) for client in range(clients)}


def test_clients_whose_replies_always_come_too_late_are_asked_where_they_fit(planted):
    """One device in five never makes it into the common cohort; none is left without its own."""
    keys = {**planted, "cohorts": "split-test", "clients-per-round": 16, "num-server-rounds": 12}
    keys |= {"split-test.first-split": 1}
    keys |= {"devices.slow": True, "round.over-commit": 0.25}
    result = run_local(keys)
    where = cohorts_of(result)
    truth = [int(key) % GROUPS for key in where]
    assert adjusted_rand_score(truth, [*where.values()]) > 0.9
    asked = [e for e in events(result, "exchange") if e["kind"] == "query.losses"]
    assert asked
    assert all(e["sent"] < 20 for e in asked)  # who is known and fits is not asked


def test_what_baselines_ask_is_counted(planted):
    """Every client gets all four models in every round of IFCA, and one to pretrain in FlexCFL."""
    ifca = run_local({**planted, "cohorts": "ifca", "num-server-rounds": 2})
    flex = run_local({**planted, "cohorts": "flexcfl", "num-server-rounds": 2})
    asked = {
        name: [e for e in events(result, "exchange") if e["kind"] == kind]
        for name, result, kind in (("ifca", ifca, "query.losses"), ("flex", flex, "query.update"))
    }
    trained = next(e for e in events(ifca, "exchange") if e["kind"] == "train")
    model = trained["bytes-down"] / trained["sent"]
    assert [e["sent"] for e in asked["ifca"]] == [20, 20]
    for exchange in asked["ifca"]:
        assert exchange["bytes-down"] == pytest.approx(20 * 4 * model, rel=0.02)
    assert sum(e["sent"] for e in asked["flex"]) == 20
    assert sum(e["bytes-up"] for e in asked["flex"]) == pytest.approx(20 * model, rel=0.02)
    total = sum(e["bytes-down"] + e["bytes-up"] for e in asked["ifca"])
    assert sum(row.get("bytes-select") or 0 for row in ifca.rounds) >= total


def test_indices_alone_travel_for_clustering(planted):
    result = run_local(
        {
            **planted,
            "cohorts": "similarity",
            "similarity": "centred-overlap",
            "num-server-rounds": 3,
        }
    )
    assert [e["values-used"] for e in events(result, "cohorts")] == [False] * 3
    (drawn,) = events(result, "similarity")  # in round 2
    assert set(drawn["clients"]) == set(drawn["labels"]) == {str(i) for i in range(20)}
    assert [len(row) for row in drawn["matrix"]] == [20] * 20
    assert drawn["labels"] == cohorts_of(result)
    same = [drawn["labels"][key] == drawn["labels"]["0"] for key in drawn["clients"]]
    near = drawn["matrix"][drawn["clients"].index("0")]
    assert min(s for s, own in zip(near, same, strict=True) if own) > max(
        s for s, own in zip(near, same, strict=True) if not own
    )
    asked = {e["kind"] for e in events(result, "exchange")}
    assert asked == {"query.identify", "train"}  # supports rode on training replies


def test_everyone_trains_also_in_cohorts_of_different_sizes(planted):
    keys = {"cohorts": "similarity", "similarity": "oracle", "client-selector": "all"}
    keys |= {"partition": "pathological", "groups.kind": "none", "num-server-rounds": 3}
    result = run_local({**planted, **keys, "clients-per-round": 0})
    sizes = events(result, "cohorts")[-1]["members"]
    assert len(set(sizes.values())) > 1
    assert [e["received"] for e in events(result, "exchange") if e["kind"] == "train"] == [20] * 3


@pytest.mark.parametrize("rule", ["similarity", "neighbours"])
@pytest.mark.parametrize("signatures", [True, False])
def test_one_client_alone_trains(planted, rule, signatures):
    keys = {"cohorts": rule, "similarity": "centred-overlap", "ios.signatures": signatures}
    keys |= {"num-clients": 1, "clients-per-round": 1, "num-server-rounds": 3}
    result = run_local({**planted, **keys, "groups.kind": "none"})
    assert result.reason == "completed"
    assert not events(result, "similarity")


def bytes_up(result, kind):
    return [e["bytes-up"] for e in events(result, "exchange") if e["kind"] == kind]


def clusters_of(drawn):
    """The clusters as sets of clients, whatever they are called."""
    labels = drawn["labels"]
    return {frozenset(k for k in labels if labels[k] == name) for name in labels.values()}


def test_signatures_find_the_clusters_of_supports_for_fewer_bytes(planted, monkeypatch):
    """Half as long as usual: the model is small."""
    similarity = "forager.strategies.similarities.support_similarity"
    for place, value in (("HASHES", 64), ("BANDS", 16)):
        monkeypatch.setattr(f"{similarity}.{place}", value)
    monkeypatch.setattr("forager.client_app.hooks.supports.HASHES", 64)
    keys = {**planted, "cohorts": "similarity", "similarity": "centred-overlap", "model": "mlp"}
    keys |= {"ios.share": 0.1, "net.hidden": 200}
    full = run_local(keys)
    signed = run_local({**keys, "ios.signatures": True, "local.check-wire": True})
    for one, other in zip(events(full, "similarity"), events(signed, "similarity"), strict=True):
        assert clusters_of(one) == clusters_of(other)
        assert len(clusters_of(one)) == GROUPS
    told = events(signed, "supports")
    assert [e["round"] for e in told] == [2, 7]
    everyone = {str(i) for i in range(20)}
    assert all(set(e["fetched"]) <= everyone and e["signatures"] == 20 for e in told)
    assert all(30 <= e["candidate-pairs"] < e["pairs"] == 190 for e in told)
    # In a round without clustering a signature replaces the support; when clusters are formed,
    # those in candidate pairs are asked for what they signed.
    saved = bytes_up(full, "train")[2] - bytes_up(signed, "train")[2]
    assert saved > 20 * 200
    assert len(bytes_up(signed, "query.support")) == 2
    assert sum(bytes_up(signed, "train")) + sum(bytes_up(signed, "query.support")) < sum(
        bytes_up(full, "train")
    )
    assert all(e["values-used"] is False for e in events(signed, "cohorts"))


def test_supports_are_fetched_from_candidates_only(planted, monkeypatch):
    keys = {"cohorts": "similarity", "similarity": "centred-overlap", "num-server-rounds": 2}
    monkeypatch.setattr("forager.strategies.similarities.support_similarity.BANDS", 1)
    result = run_local({**planted, **keys, "ios.signatures": True})  # all hashes must agree
    (told,) = events(result, "supports")
    assert (told["candidate-pairs"], told["fetched"]) == (0, [])
    assert not bytes_up(result, "query.support")
    assert len(events(result, "similarity")) == 1  # by estimates alone


def test_neighbours_by_signatures_are_those_by_supports(planted, monkeypatch):
    keys = {**planted, "cohorts": "neighbours", "similarity": "centred-overlap"}
    keys |= {"num-server-rounds": 3, "ios.neighbours": 4, "local.check-wire": True}
    full = run_local(keys)
    monkeypatch.setattr("forager.strategies.similarities.support_similarity.BANDS", 64)
    signed = run_local({**keys, "ios.signatures": True})
    graphs = [events(result, "neighbours")[1]["graph"] for result in (full, signed)]
    (told,) = events(signed, "supports")
    assert told["round"] == 2
    assert set(told["fetched"]) == set(graphs[0])
    assert graphs[0] == graphs[1]  # in round 2, by exact overlaps
    assert [e["values"] for e in events(signed, "neighbours")] == [False] * 3


@pytest.mark.parametrize(
    "rule", ["split-test", "auxo", "ifca", "cfl", "flexcfl", "fl-hc", "similarity", "neighbours"]
)
def test_a_resumed_run_goes_on_as_if_never_stopped(planted, rule):
    keys = {**planted, "cohorts": rule, "local-epochs": 2, "clients-per-round": 10}
    if rule in ("similarity", "neighbours"):
        keys["similarity"] = "centred-overlap"
    whole = run_local({**keys, "num-server-rounds": 7, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 5, "run-name": "part"})
    resumed = run_local({**keys, "num-server-rounds": 7, "resume-from": str(part.folder)})
    models = ["model.safetensors", *(p.name for p in whole.folder.glob("model-*.safetensors"))]
    for name in models:
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


SIMILARITIES = [*("centred-overlap", "index-overlap", "signed-overlap", "cosine")]
SIMILARITIES += ["euclidean", "oracle"]


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_neighbours_by_wire(planted, similarity):
    result = run_local(
        {
            **planted,
            "cohorts": "neighbours",
            "similarity": similarity,
            "num-server-rounds": 3,
            "ios.neighbours": 4,
            "local.check-wire": True,
        }
    )
    graph = events(result, "neighbours")[-1]["graph"]
    assert set(graph) == {str(i) for i in range(20)}
    assert all(len(near) == 5 and key in near for key, near in graph.items())
    (drawn,) = events(result, "similarity")
    assert drawn["round"] == 2
    assert len(drawn["clients"]) == len(drawn["matrix"]) == 20
    if similarity not in ("euclidean", "oracle"):
        own = [
            sum(int(n) % GROUPS == int(key) % GROUPS for n in near) for key, near in graph.items()
        ]
        assert sum(own) / 20 > 3  # of the five, itself included


def test_clients_spread_out_by_their_signatures(planted):
    keys = {
        "client-selector": "support-diversity",
        "clients-per-round": 4,
        "local.check-wire": True,
    }
    result = run_local({**planted, **keys, "num-server-rounds": 8})
    assert not events(result, "quarantined")
    chosen = [e["chosen"] for e in events(result, "selected")]
    assert len({key for round_ in chosen[:5] for key in round_}) == 20  # the unknown come first
    groups = [len({int(key) % GROUPS for key in round_}) for round_ in chosen[5:]]
    assert min(groups) >= 3


@pytest.mark.parametrize("rule", ["similarity", "neighbours"])
def test_a_resumed_run_by_signatures_goes_on_as_if_never_stopped(planted, rule):
    keys = {**planted, "cohorts": rule, "similarity": "centred-overlap", "ios.signatures": True}
    keys |= {"local-epochs": 2, "clients-per-round": 10, "ios.every": 2}
    whole = run_local({**keys, "num-server-rounds": 5, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 3, "run-name": "part"})
    resumed = run_local({**keys, "num-server-rounds": 5, "resume-from": str(part.folder)})
    name = "model.safetensors"
    assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"strategy": "ios-centred", "ios.share": 1.5}, "ios.share = 1.5"),
        ({"strategy": "ios-centred", "ios.most": -0.1}, "ios.most = -0.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keys, named):
    with pytest.raises(ConfigError, match=named):
        read_config(keys)


@pytest.mark.parametrize("privacy", ["local-dp", "central-dp"])
def test_privacy_is_accounted_for(planted, privacy):
    keys = {"privacy": privacy, "dp.noise-multiplier": 2.0, "num-server-rounds": 3}
    result = run_local({**planted, **keys, "uplink": "top-k"})
    spent = [e["epsilon-most"] for e in events(result, "privacy")]
    assert len(spent) == 3
    assert 0 < spent[0] < spent[1] < spent[2] < 20


def test_what_is_not_private_is_refused():
    with pytest.raises(ConfigError, match="local-dp"):
        read_config({"privacy": "local-dp", "objective": "scaffold"})


@pytest.mark.parametrize("rule", ["ifca", "flexcfl", "fl-hc"])
def test_cohorts_for_which_clients_tell_more_are_not_private(rule):
    with pytest.raises(ConfigError, match=r"local-dp.* has clients send more than a noisy model"):
        read_config({"privacy": "local-dp", "cohorts": rule})


def test_fine_tuning_before_evaluation_helps(planted):
    keys = {"data.client-test-share": 0.2, "fraction-evaluate": 1.0}
    plain = run_local({**planted, **keys})
    tuned = run_local({**planted, **keys, "personalise.epochs": 10})
    accuracies = [result.rounds[-1]["clients-accuracy-mean"] for result in (plain, tuned)]
    assert accuracies[1] > accuracies[0] + 0.2


@pytest.mark.parametrize("lie", ["nan", "bomb", "rubbish", "other names", "nothing"])
@pytest.mark.parametrize(
    "rule",
    [
        {"cohorts": "fl-hc", "cohort.joint-rounds": 2},
        {"cohorts": "flexcfl"},
        {"cohorts": "similarity", "similarity": "cosine", "ios.first-round": 2},
    ],
    ids=lambda rule: rule["cohorts"],
)
def test_an_update_that_was_asked_for_and_is_none(planted, monkeypatch, rule, lie):
    """It is not compared, and the others are: nothing that was sent is trusted."""
    honest = app.HANDLERS[ASK_UPDATE]
    bomb = b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999,), }"
    forged = b"\x93NUMPY\x01\x00" + len(bomb).to_bytes(2, "little") + bomb

    def spoilt(record):
        name, array = next(iter(record.items()))
        wrong = {
            "nan": Array(np.full(array.shape, np.nan, np.float32)),
            "bomb": Array(array.dtype, array.shape, array.stype, forged),
            "rubbish": Array(array.dtype, array.shape, array.stype, b"PK\x03\x04rubbish"),
        }
        if lie == "nothing":
            return ArrayRecord()
        if lie == "other names":
            return ArrayRecord({"x" + n: a for n, a in record.items()})
        return ArrayRecord({**record, name: wrong[lie]})

    def handler(batch):
        replies = list(honest(batch))
        for reply, context in zip(replies, batch.contexts, strict=True):
            if context.node_config["partition-id"] == 3:
                reply.content[ARRAYS] = spoilt(reply.content[ARRAYS])
        return replies

    monkeypatch.setitem(app.HANDLERS, ASK_UPDATE, handler)
    more = {"num-server-rounds": 3, "local-epochs": 1, "round.give-up-after": 0.01}
    result = run_local({**planted, **rule, **more})
    assert result.reason == "completed"
    assert len(cohorts_of(result)) == 20


def test_who_fakes_its_affinity_is_barred_and_nobody_else(planted):
    """Every fifth client claims to fit where it does not; one of them is right by chance."""
    with fake_affinity():
        result = run_local({**planted, "cohorts": "auxo", "num-server-rounds": 5})
    barred = {key for event in events(result, "cohorts") for key in event["barred"]}
    assert barred == {"5", "10", "15"}
    honest = run_local({**planted, "cohorts": "auxo", "num-server-rounds": 5})
    assert not any(event["barred"] for event in events(honest, "cohorts"))


def test_auxo_takes_whole_supports_whatever_signatures_say(tmp_path, said):
    keys = {"cohorts": "split-test", "similarity": "centred-overlap", "ios.signatures": True}
    result = run_local({**keys, "num-server-rounds": 2, "output-dir": str(tmp_path)})
    assert result.reason == "completed"
    assert any("not used by this run: ios.signatures" in line for line in said)


@pytest.mark.parametrize("similarity", ["cosine", "centred-overlap"])
def test_a_client_that_says_its_name_late_does_not_stop_a_round(tmp_path, monkeypatch, similarity):
    honest = local_grid.answer

    def answer(requests, contexts):
        replies = list(honest(requests, contexts))
        for reply, context in zip(replies, contexts, strict=True):
            if requests.kind == IDENTIFY and context.node_config["partition-id"] == 0:
                del reply.content[CLIENT]
        return Delivery.of(replies)

    monkeypatch.setattr(local_grid, "answer", answer)
    result = run_local(
        {
            "output-dir": str(tmp_path),
            "report": False,
            "num-clients": 6,
            "num-server-rounds": 3,
            "cohorts": "similarity",
            "similarity": similarity,
            "ios.first-round": 1,
            "ios.every": 1,
            "round.give-up-after": 1e-9,
        }
    )
    assert result.reason == "completed"
