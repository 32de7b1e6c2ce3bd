import numpy as np
import pytest
from forager.selectors.cohorts.cfl import Cfl, bipartition, stationary_but_torn
from forager.selectors.cohorts.clove import Clove
from forager.selectors.cohorts.fl_hc import FlHc, hierarchical_clusters
from forager.selectors.cohorts.flexcfl import FlexCfl, decomposed_cosine, group_clients, pretrained
from forager.selectors.cohorts.ifca import Ifca, best_model
from sklearn.metrics import adjusted_rand_score


def directions(groups: int, each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(groups), each))
    return np.eye(12)[truth] + 0.05 * rng.normal(size=(len(truth), 12)), truth


# IFCA


def test_every_client_takes_the_model_of_lowest_loss() -> None:
    assert best_model([[2.0, 1.0, 1.0], [0.5, np.inf, np.nan]]).tolist() == [1, 0]
    assert best_model([[np.nan, np.nan]]).tolist() == [-1]
    assert best_model(np.empty((0, 2))).tolist() == []
    with pytest.raises(ValueError, match="losses"):
        best_model([1.0, 2.0])


def test_ifca_follows_the_losses_and_remembers() -> None:
    ifca = Ifca(models=3)
    assert ifca.observe(["a", "b"], [[3, 2, 1], [1, 2, 3]]) == ["0.2", "0.0"]
    assert ifca.observe(["a", "b"], [[np.nan] * 3, [3, 1, 2]]) == ["0.2", "0.1"]
    other = Ifca(models=3)
    other.load_state_dict(ifca.state_dict())
    assert other.members.of(["a", "b"]) == {"0.0": [], "0.1": ["b"], "0.2": ["a"]}
    with pytest.raises(ValueError, match="3 models, expected 2"):
        Ifca(models=2).load_state_dict(ifca.state_dict())
    with pytest.raises(ValueError, match="3 columns"):
        ifca.observe(["a"], [[1.0, 2.0]])
    assert Ifca(models=1).observe(["a"], [[1.0]]) == ["0"]


# CFL


def test_a_cohort_is_torn_if_the_mean_is_short_and_one_update_long() -> None:
    opposite = np.array([[2.0, 0.0], [-2.0, 0.0]])
    assert stationary_but_torn(opposite)
    assert not stationary_but_torn(0.1 * opposite)  # all have converged
    assert not stationary_but_torn(opposite + 1.0)  # still moving
    assert not stationary_but_torn(np.empty((0, 2)))


def test_the_least_alike_are_separated() -> None:
    updates, truth = directions(2, 8)
    one, two = bipartition(updates)
    assert 0 in one
    assert sorted([*one, *two]) == list(range(16))
    assert len(set(truth[one])) == len(set(truth[two])) == 1
    one, two = bipartition(np.zeros((3, 4)))
    assert len(one) + len(two) == 3
    with pytest.raises(ValueError, match="2 or more"):
        bipartition([[1.0, 2.0]])


def test_children_hold_the_clients_and_not_their_positions() -> None:
    """The fault of the authors' code: the second split named other clients."""
    cfl = Cfl(after_round=0)
    everyone = {"a": (3, 0), "b": (-2, 1), "c": (3, 0.1), "d": (-2, -1), "e": (-2, 0)}
    cfl.observe("0", list(everyone), list(everyone.values()), round=1)
    assert cfl.members.of(list(everyone)) == {"0.0": ["a", "c"], "0.1": ["b", "d", "e"]}
    rest = np.array([[0, -2], [0, 2.0], [0, -0.1]])
    assert cfl.observe("0.1", ["e", "d", "b"], rest, round=2) == ["0.1.0", "0.1.1"]
    found = cfl.members.of(list(everyone))
    assert found == {"0.0": ["a", "c"], "0.1.0": ["b", "e"], "0.1.1": ["d"]}


def test_cfl_waits_and_leaves_small_cohorts_alone() -> None:
    torn = np.array([[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]])
    cfl = Cfl()
    assert cfl.observe("0", list("abcd"), torn, round=20) == []
    assert cfl.observe("0", list("ab"), torn[:2], round=21) == []
    assert cfl.observe("0", list("abcd"), torn, round=21) == ["0.0", "0.1"]
    with pytest.raises(ValueError, match="leaf"):
        cfl.observe("0", list("abcd"), torn, round=22)
    with pytest.raises(ValueError, match="4 rows"):
        cfl.observe("0.0", list("abcd"), torn[:2], round=22)


# FedGroup, FlexCFL


def test_the_decomposed_cosine_is_that_with_the_main_directions() -> None:
    updates, _ = directions(3, 10)
    cosines = decomposed_cosine(updates, 3)
    _, _, main = np.linalg.svd(updates)
    expected = updates @ main[:3].T / np.linalg.norm(updates, axis=1)[:, None]
    np.testing.assert_allclose(np.abs(cosines), np.abs(expected), atol=1e-12)
    assert np.all(np.abs(cosines) <= 1 + 1e-12)


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_groups_are_found_and_newcomers_join_theirs(groups: int) -> None:
    updates, truth = directions(groups, 10, seed=groups)
    assert adjusted_rand_score(truth, group_clients(updates, groups)) == 1
    flex, keys = FlexCfl(groups), [str(i) for i in range(len(truth))]
    assert len(flex.start(keys, updates)) == groups
    other = FlexCfl(groups)
    other.load_state_dict(flex.state_dict())
    newcomers, theirs = directions(groups, 5, seed=99)
    for i, (update, group) in enumerate(zip(newcomers, theirs, strict=True)):
        leaf = other.join(f"new{i}", 7 * update)
        member = keys[np.flatnonzero(truth == group)[0]]
        assert leaf == flex.members.leaf_of(member) == other.members.leaf_of(f"new{i}")


def test_one_client_identical_clients_and_more_groups_than_clients() -> None:
    assert FlexCfl(3).start(["a"], [[1.0, 2.0]]) == ["0"]
    assert FlexCfl(3).start(["a", "b"], np.ones((2, 4))) == ["0"]
    assert group_clients(np.zeros((3, 4)), 2).tolist() == [0, 0, 0]
    assert FlexCfl(5).start(["a", "b"], np.eye(2)) == ["0.0", "0.1"]
    with pytest.raises(ValueError, match="before the start"):
        FlexCfl(2).join("a", [1.0])
    with pytest.raises(ValueError, match="at least one"):
        FlexCfl(2).start([], np.empty((0, 3)))


# FL+HC


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("cut", [{"threshold": 0.9}, {"clusters": 3}])
def test_hierarchical_clusters(metric: str, cut: dict[str, float]) -> None:
    updates, truth = directions(3, 8)
    if metric == "manhattan" and "threshold" in cut:
        cut = {"threshold": 1.6}
    labels = hierarchical_clusters(updates, **cut, metric=metric)  # type: ignore[arg-type]
    assert adjusted_rand_score(truth, labels) == 1


def test_hierarchical_clusters_of_few_and_of_the_same() -> None:
    assert hierarchical_clusters([[1.0]], clusters=3).tolist() == [0]
    assert hierarchical_clusters(np.empty((0, 2)), threshold=1.0).tolist() == []
    assert hierarchical_clusters(np.ones((4, 2)), threshold=0.5).tolist() == [0] * 4
    assert hierarchical_clusters(np.eye(2), clusters=5).tolist() == [0, 1]
    zeros = hierarchical_clusters([[0.0, 0.0], [1.0, 0.0]], threshold=0.5, metric="cosine")
    assert zeros.tolist() == [0, 1]
    assert hierarchical_clusters([[0.0], [1.0], [9.0]], clusters=2, method="ward").tolist() == [
        0,
        0,
        1,
    ]


def test_settings_of_fl_hc_that_make_no_sense_are_refused() -> None:
    for bad in ({}, {"threshold": 1.0, "clusters": 2}):
        with pytest.raises(ValueError, match="exactly one"):
            FlHc(**bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric: expected one of"):
        FlHc(clusters=2, metric="taxi")
    with pytest.raises(ValueError, match="ward"):
        FlHc(clusters=2, metric="cosine", method="ward")


def test_fl_hc_clusters_once_and_continues_after_a_restart() -> None:
    updates, truth = directions(3, 4)
    keys = [str(i) for i in range(12)]
    hc = FlHc(cluster_round=5, clusters=3)
    assert [hc.due(round) for round in (4, 5, 6)] == [False, True, True]
    assert len(hc.cluster(keys, updates)) == 3
    assert not hc.due(6)
    with pytest.raises(ValueError, match="done before"):
        hc.cluster(keys, updates)
    other = FlHc(cluster_round=5, clusters=3)
    other.load_state_dict(hc.state_dict())
    assert not other.due(6)
    assert other.members.of(keys) == hc.members.of(keys)
    for members in other.members.of(keys).values():
        assert len({int(truth[int(key)]) for key in members}) == 1


def test_clove_tells_groups_apart_that_ifca_sends_to_one_model() -> None:
    """Of three models the first is better for everybody: a bad start."""
    rng = np.random.default_rng(0)
    losses = np.array([[0.3, 1.0, 2.0], [0.3, 2.0, 1.0], [0.9, 2.0, 2.0]])[np.arange(12) % 3]
    losses = losses + rng.normal(scale=0.02, size=losses.shape)
    keys = [str(i) for i in range(12)]
    assert set(Ifca(models=3).observe(keys, losses)) == {"0.0"}
    clove = Clove(models=3)
    places = clove.observe(keys, losses)
    assert len(set(places)) == 3
    assert all(places[i] == places[i % 3] for i in range(12))
    with pytest.raises(ValueError, match="3 columns"):
        clove.observe(["a"], [[1.0, 2.0]])


def test_clove_leaves_those_without_losses_where_they_are() -> None:
    clove = Clove(models=2)
    before = clove.observe(["a", "b"], [[0.1, 0.9], [0.9, 0.1]])
    assert clove.observe(["a", "b"], [[np.nan, 0.9], [0.9, 0.1]])[0] == before[0]


def test_flexcfl_trains_twenty_clients_per_group_alone_if_there_are_so_many() -> None:
    assert [pretrained(2, clients) for clients in (7, 40, 100)] == [7, 40, 40]


def test_clients_that_differ_by_rounding_alone_are_one_group() -> None:
    assert group_clients([[1, 0], [1, 3e-10]], 2).tolist() == [0, 0]
    assert group_clients([[1, 0], [1, 3e-8]], 2).tolist() == [0, 1]
