import numpy as np
import pytest
from forager.selectors.cohorts.online import OnlineClusters, assign, best_parts, first_labels
from forager.selectors.cohorts.projection import unit_rows
from forager.selectors.cohorts.split import Gain, SplitRule, SplitWatch
from sklearn.metrics import adjusted_rand_score


def groups(count: int, each: int, seed: int = 0, noise: float = 0.2) -> tuple[np.ndarray, ...]:
    """Directions around ``count`` that are at right angles, in random scales and order."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(count), each))
    points = np.eye(16)[truth] + noise * rng.normal(size=(count * each, 16)) / 4
    return points * rng.uniform(0.01, 100, (len(points), 1)), truth


def test_the_first_labels_are_k_means_of_directions() -> None:
    points, truth = groups(3, 10)
    assert adjusted_rand_score(truth, assign(points, np.full(30, -1), 3)) == 1


def test_everyone_goes_to_the_closest_centroid_of_the_known() -> None:
    points, truth = groups(3, 10)
    labels = np.where(np.arange(30) < 12, truth, -1)
    labels[np.flatnonzero(truth == 0)[0]] = 1  # known, but wrongly
    assert assign(points, labels, 3).tolist() == truth.tolist()


def test_labels_are_kept_where_one_is_missing_unless_its_centroid_is_known() -> None:
    points, truth = groups(2, 5)
    labels = np.where(truth == 0, 0, -1)
    assert assign(points, labels, 2).tolist() == labels.tolist()
    assert assign(points, labels, 2, centroids=np.eye(16)[:2]).tolist() == truth.tolist()


def test_inputs_are_not_changed_and_only_directions_count() -> None:
    points, truth = groups(2, 5)
    labels = np.where(np.arange(10) < 6, truth, -1)
    before = labels.copy()
    assert assign(points, labels, 2).tolist() == assign(1e-200 * points, labels, 2).tolist()
    assert labels.tolist() == before.tolist()


@pytest.mark.parametrize("clients", [0, 1, 2])
def test_fewer_clients_than_clusters(clients: int) -> None:
    points = np.eye(4)[:clients]
    assert assign(points, [-1] * clients, 3).tolist() == list(range(clients))


def test_identical_and_zero_updates() -> None:
    assert assign(np.ones((6, 4)), [-1] * 6, 3).tolist() == [0] * 6
    assert assign(np.zeros((3, 4)), [-1, -1, -1], 2).tolist() == [-1, -1, -1]
    assert assign([[1.0, 0], [0, 1.0], [0, 0]], [0, 1, 1], 2).tolist() == [0, 1, 1]
    assert assign(np.eye(3), [-1, 0, -1], 1).tolist() == [0, 0, 0]


def test_bad_labels_and_updates_are_refused() -> None:
    with pytest.raises(ValueError, match="from -1 to 1"):
        assign(np.eye(2), [0, 2], 2)
    with pytest.raises(ValueError, match="labels: expected 2"):
        assign(np.eye(2), [0], 2)
    with pytest.raises(ValueError, match="parts"):
        assign(np.eye(2), [0, 0], 0)
    with pytest.raises(ValueError, match="finite"):
        assign([[np.nan, 1.0]], [0], 2)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_as_many_parts_as_there_are_groups(count: int) -> None:
    points, truth = groups(count, 12, seed=count)
    labels, parts = best_parts(points, 5)
    assert parts == count
    assert adjusted_rand_score(truth, labels) == 1


def test_one_direction_is_one_part() -> None:
    labels, parts = best_parts(np.ones((9, 3)), 4)
    assert (parts, set(labels.tolist())) == (1, {0})
    assert first_labels(np.zeros((2, 3)), 4).tolist() == [-1, -1]


def test_clusters_that_are_found_afresh_void_the_old_numbers() -> None:
    """Two groups become three, all at right angles: no split in two is worth it any more."""
    clusters = OnlineClusters(3, SplitRule(), retry=2)
    two, _ = groups(2, 9)
    labels, _ = clusters.step(unit_rows(two), [-1] * 18)
    old = clusters.indices_of(labels)
    assert set(old.tolist()) == {0, 1}
    three, truth = groups(3, 6)
    first_try = clusters.indices_of(clusters.step(unit_rows(three), old)[0])
    assert set(first_try.tolist()) <= {0, 1}
    labels, gain = clusters.step(unit_rows(three), first_try)
    assert adjusted_rand_score(truth, labels) == 1
    assert clusters.rule.gains(gain)
    new = clusters.indices_of(labels)
    assert set(new.tolist()) == {2, 3, 4}
    assert set(clusters.labels_of(old).tolist()) == {-1}
    assert clusters.labels_of(new).tolist() == labels.tolist()


def test_members_that_never_meet_are_still_told_apart() -> None:
    """Among very many clients nobody of the round before takes part again."""
    clusters = OnlineClusters(4, SplitRule())
    centres = np.random.default_rng(9).normal(size=(4, 16))
    named: dict[int, int] = {}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = rng.permutation(np.repeat(np.arange(4), 8))
        points = centres[truth] + 0.3 * rng.normal(size=(32, 16))
        labels, _ = clusters.step(unit_rows(points), [-1] * 32)
        named = named or dict(zip(truth.tolist(), labels.tolist(), strict=True))
        assert labels.tolist() == [named[group] for group in truth.tolist()]


def test_no_clusters_if_none_are_wanted_or_too_few_take_part() -> None:
    points, _ = groups(2, 10)
    assert set(OnlineClusters(1, SplitRule()).step(points, [-1] * 20)[0].tolist()) == {-1}
    assert OnlineClusters(4, SplitRule()).step(points[:7], [-1] * 7)[0].tolist() == [-1] * 7


def test_one_direction_is_no_cluster_and_the_search_goes_on() -> None:
    clusters, (points, truth) = OnlineClusters(4, SplitRule()), groups(2, 10)
    assert clusters.step(np.tile(points[:1], (20, 1)), [-1] * 20)[0].tolist() == [-1] * 20
    assert clusters.parts == 0
    assert adjusted_rand_score(truth, clusters.step(points, [-1] * 20)[0]) == 1


GOOD = Gain(before=1.0, after=0.2, parts=2, smallest_share=0.5)
BAD = Gain(before=1.0, after=0.6, parts=2, smallest_share=0.5)


def test_heterogeneity_must_fall_several_rounds_in_a_row() -> None:
    watch = SplitWatch(SplitRule(first_round=0, rounds=3))
    rounds = [GOOD, GOOD, BAD, GOOD, GOOD, GOOD]
    assert [watch.due(5, gain, 20) for gain in rounds] == [False] * 5 + [True]
    other = SplitWatch(watch.rule)
    other.load_state_dict(watch.state_dict())
    assert other.due(6, GOOD, 20)


def test_not_before_the_first_round_nor_with_too_few_left() -> None:
    rule = SplitRule(first_round=3, rounds=1, participants=10)
    due = [SplitWatch(rule).due(round, GOOD, 10) for round in range(2, 5)]
    assert due == [False, True, True]
    assert not SplitWatch(rule).due(4, GOOD, 9.9)


def test_how_far_it_must_fall_depends_on_the_parts() -> None:
    four = Gain(before=1.0, after=0.3, parts=4, smallest_share=0.25)
    assert not SplitRule().gains(four)
    assert SplitRule(exponent=0.5).gains(four)
    assert not SplitRule(exponent=0.0).gains(Gain(0.0, 0.0, 2, 0.5))  # all the same already
    assert not SplitRule().gains(Gain(1.0, 0.0, 2, smallest_share=0.05))  # outliers


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="first_round: expected 0"):
        SplitRule(first_round=-1)
    with pytest.raises(ValueError, match="rounds: expected 1"):
        SplitRule(rounds=0)
    with pytest.raises(ValueError, match="smallest_share"):
        SplitRule(smallest_share=1.5)


@pytest.mark.parametrize(
    ("round", "gain", "participants", "reason"),
    [
        (1, GOOD, 20.0, "a cohort splits after 2 rounds at the earliest (auxo.first-split)"),
        (5, Gain(1.0, 1.0, 1, 1.0), 20.0, "no clusters were found"),
        (5, Gain(1.0, 0.7, 2, 0.5), 20.0, "2 clusters leave 70% of the heterogeneity, at most 50%"),
        (5, Gain(1.0, 0.1, 2, 0.05), 20.0, "the smallest of 2 clusters has 5% of the participants"),
        (5, GOOD, 4.0, "each part would have 4 participants per round, and needs 10: let more"),
    ],
)
def test_what_stands_against_a_split_is_said(
    round: int, gain: Gain, participants: float, reason: str
) -> None:
    watch = SplitWatch(SplitRule(first_round=2, rounds=1))
    assert not watch.due(round, gain, participants)
    assert watch.reason.startswith(reason)


def test_one_clear_round_is_not_enough() -> None:
    watch = SplitWatch(SplitRule(first_round=0, rounds=2))
    assert not watch.due(5, GOOD, 20)
    assert watch.reason == "clear clusters for 1 of 2 rounds in a row"
    assert watch.due(6, GOOD, 20)
    assert watch.reason == ""
