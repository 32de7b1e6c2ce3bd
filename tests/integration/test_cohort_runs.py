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


def test_one_part_is_never_split(planted):
    result = run_local({**planted, "cohorts": "auxo", "cohort.parts": 1})
    assert result.reason == "completed"
    assert not events(result, "regrouped")


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("rule", ["auxo", "ifca", "cfl", "flexcfl", "fl-hc"])
def test_fewer_clients_than_cohorts(planted, rule, clients):
    few = {"num-clients": clients, "clients-per-round": clients, "num-server-rounds": 6}
    few |= {"cohort.min-participants": 1, "local-epochs": 1, "groups.kind": "none"}
    result = run_local({**planted, **few, "cohorts": rule})
    assert result.reason == "completed"
    assert set(cohorts_of(result)) == {str(client) for client in range(clients)}


def test_clients_whose_replies_always_come_too_late_are_asked_where_they_fit(planted):
    """One device in five never makes it, so its cohort is anybody's guess unless it is asked."""
    keys = {**planted, "cohorts": "auxo", "clients-per-round": 16, "num-server-rounds": 12}
    keys |= {"devices.slow": True, "round.over-commit": 0.25}
    found = {}
    for after in (0, 3):
        result = run_local({**keys, "cohort.ask-newcomers": after})
        where = cohorts_of(result)
        found[after] = adjusted_rand_score([int(key) % GROUPS for key in where], [*where.values()])
        asked = [e for e in events(result, "exchange") if e["kind"] == "query.losses"]
        assert bool(asked) == bool(after)
        assert all(e["sent"] <= 4 for e in asked)
    assert found[0] < 0.9 < found[3]


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
        {**planted, "cohorts": "similarity", "similarity": "index-overlap", "num-server-rounds": 3}
    )
    assert [e["values-used"] for e in events(result, "cohorts")] == [False] * 3
    asked = {e["kind"] for e in events(result, "exchange")}
    assert asked == {"query.identify", "train"}  # supports rode on training replies


@pytest.mark.parametrize(
    "rule", ["auxo", "ifca", "cfl", "flexcfl", "fl-hc", "similarity", "neighbours"]
)
def test_a_resumed_run_goes_on_as_if_never_stopped(planted, rule):
    keys = {**planted, "cohorts": rule, "local-epochs": 2, "clients-per-round": 10}
    if rule in ("similarity", "neighbours"):
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


@pytest.mark.parametrize("rule", ["ifca", "flexcfl", "fl-hc", "auxo"])
def test_cohorts_for_which_clients_tell_more_are_not_private(rule):
    keys = {"privacy": "local-dp", "cohorts": rule}
    if rule == "auxo":
        read_config(keys)  # finds cohorts by what is noisy already
        keys["cohort.ask-newcomers"] = 5
    with pytest.raises(ConfigError, match=r"local-dp.* has clients send more than a noisy model"):
        read_config(keys)


def test_fine_tuning_before_evaluation_helps(planted):
    keys = {"data.client-test-share": 0.2, "fraction-evaluate": 1.0}
    plain = run_local({**planted, **keys})
    tuned = run_local({**planted, **keys, "personalise.epochs": 10})
    accuracies = [
        [e for e in events(result, "evaluated") if e["where"] == "clients"][-1]["accuracy-mean"]
        for result in (plain, tuned)
    ]
    assert accuracies[1] > accuracies[0] + 0.2
