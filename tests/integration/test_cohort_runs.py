"""Clients that gather in cohorts, on the local engine: planted groups are found."""

import json

import pytest
from sklearn.metrics import adjusted_rand_score

from server_app.config import ConfigError, read_config
from server_app.local import run_local

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
        "cohort.first-clustering": 2,
        "cohort.first-split": 4,
        "cohort.min-participants": 3,
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


@pytest.mark.parametrize("rule", ["auxo", "ifca", "cfl", "flexcfl", "fl-hc", "similarity"])
def test_every_rule_finds_planted_groups(planted, rule):
    also = {"similarity": "index-overlap"} if rule == "similarity" else {}
    # CFL splits in two at a time, and only near a common optimum.
    more = {"cohort.mean-norm": 0.7} if rule == "cfl" else {}
    result = run_local({**planted, **also, **more, "cohorts": rule})
    assert result.reason == "completed"
    assert not any(e["failed"] for e in events(result, "exchange"))
    where = cohorts_of(result)
    assert len(where) == 20
    truth = [int(key) % GROUPS for key in where]
    assert adjusted_rand_score(truth, list(where.values())) > 0.9
    models = sorted(path.name for path in result.folder.glob("model-*.safetensors"))
    assert len(models) == GROUPS


def test_without_groups_auxo_does_not_split(planted):
    result = run_local({**planted, "cohorts": "auxo", "groups.kind": "none"})
    assert not events(result, "regrouped")


def test_indices_alone_travel_for_clustering(planted):
    result = run_local(
        {**planted, "cohorts": "similarity", "similarity": "index-overlap", "num-server-rounds": 3}
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
    keys = {"cohorts": rule, "similarity": "index-overlap", "ios.signatures": signatures}
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


def test_signatures_find_the_clusters_of_supports_for_fewer_bytes(planted):
    keys = {**planted, "cohorts": "similarity", "similarity": "index-overlap", "model": "mlp"}
    keys |= {"ios.hashes": 64, "ios.bands": 16, "ios.share": 0.1, "net.hidden": 200}
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


def test_supports_are_fetched_from_candidates_only(planted):
    keys = {"cohorts": "similarity", "similarity": "index-overlap", "num-server-rounds": 2}
    strict = {"ios.signatures": True, "ios.hashes": 64, "ios.bands": 1}  # all hashes must agree
    result = run_local({**planted, **keys, **strict})
    (told,) = events(result, "supports")
    assert (told["candidate-pairs"], told["fetched"]) == (0, [])
    assert not bytes_up(result, "query.support")
    assert len(events(result, "similarity")) == 1  # by estimates alone


def test_neighbours_by_signatures_are_those_by_supports(planted):
    keys = {**planted, "cohorts": "neighbours", "similarity": "index-overlap"}
    keys |= {"num-server-rounds": 3, "ios.neighbours": 4, "local.check-wire": True}
    full = run_local(keys)
    signed = run_local({**keys, "ios.signatures": True, "ios.bands": 64})
    graphs = [events(result, "neighbours")[1]["graph"] for result in (full, signed)]
    (told,) = events(signed, "supports")
    assert told["round"] == 2
    assert set(told["fetched"]) == set(graphs[0])
    assert graphs[0] == graphs[1]  # in round 2, by exact overlaps
    assert [e["values"] for e in events(signed, "neighbours")] == [False] * 3


@pytest.mark.parametrize("rule", ["auxo", "similarity", "neighbours"])
def test_a_resumed_run_goes_on_as_if_never_stopped(planted, rule):
    keys = {**planted, "cohorts": rule, "local-epochs": 2, "clients-per-round": 10}
    if rule != "auxo":
        keys["similarity"] = "index-overlap"
    whole = run_local({**keys, "num-server-rounds": 7, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 5, "run-name": "part"})
    resumed = run_local({**keys, "num-server-rounds": 7, "resume-from": str(part.folder)})
    models = ["model.safetensors", *(p.name for p in whole.folder.glob("model-*.safetensors"))]
    for name in models:
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize("similarity", ["index-overlap", "cosine", "euclidean", "oracle"])
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
    if similarity in ("index-overlap", "cosine"):
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
    keys = {**planted, "cohorts": rule, "similarity": "index-overlap", "ios.signatures": True}
    keys |= {"local-epochs": 2, "clients-per-round": 10, "ios.every": 2}
    whole = run_local({**keys, "num-server-rounds": 5, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 3, "run-name": "part"})
    resumed = run_local({**keys, "num-server-rounds": 5, "resume-from": str(part.folder)})
    name = "model.safetensors"
    assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"ios.signatures": True}, "ios.signatures = True: needs cohorts"),
        (
            {"cohorts": "auxo", "similarity": "index-overlap", "ios.signatures": True},
            "ios.signatures = True: needs cohorts",
        ),
        ({"strategy": "ios", "ios.signatures": True, "ios.bands": 48}, "ios.bands = 48: must"),
        ({"strategy": "ios", "ios.hashes": 5000}, "ios.hashes = 5000"),
        ({"strategy": "ios", "ios.share": 1.5}, "ios.share = 1.5"),
        ({"strategy": "ios", "ios.most": 0.0}, "ios.most = 0.0"),
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


def test_fine_tuning_before_evaluation_helps(planted):
    keys = {"data.client-test-share": 0.2, "fraction-evaluate": 1.0}
    plain = run_local({**planted, **keys})
    tuned = run_local({**planted, **keys, "personalise.epochs": 10})
    accuracies = [
        [e for e in events(result, "evaluated") if e["where"] == "clients"][-1]["accuracy-mean"]
        for result in (plain, tuned)
    ]
    assert accuracies[1] > accuracies[0] + 0.2
