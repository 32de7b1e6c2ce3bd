"""Groups are told apart from clients that merely differ, whatever the noise within clients."""

import numpy as np
import pytest
from forager.selectors.cohorts.evidence import Evidence, additive
from forager.selectors.cohorts.separation import _main_directions, separation
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

Floats = NDArray[np.float64]

DIMENSION = 64


def seen(
    always: Floats, rounds: int, noise: float, per_round: int = 0, seed: int = 0
) -> tuple[Evidence, Floats]:
    """What is seen of clients that always differ in this way, round by round."""
    rng, evidence = np.random.default_rng(seed), Evidence()
    count = len(always)
    for _ in range(rounds):
        here = rng.choice(count, per_round or count, replace=False)
        common = rng.normal(size=DIMENSION)
        updates = 3 * common + always[here] + noise * rng.normal(size=(len(here), DIMENSION))
        evidence.add([str(row) for row in here], updates)
    return evidence, always


def planted(groups: int, each: int, own: float = 0.0, seed: int = 0) -> Floats:
    """Clients of some groups, each of them a little different besides."""
    rng = np.random.default_rng(100 + seed)
    centres = rng.normal(size=(groups, DIMENSION))
    return np.repeat(centres, each, axis=0) + own * rng.normal(size=(groups * each, DIMENSION))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0])
def test_four_groups_are_found_also_if_noise_is_as_strong_as_they_are(
    noise: float, seed: int
) -> None:
    """With noise 2 its variance is four times that between the groups."""
    evidence, _ = seen(planted(4, 6, own=0.3, seed=seed), rounds=6, noise=noise, seed=seed)
    found = evidence.differences()
    groups = separation(found, most=8)
    assert groups.clear(0.15)
    assert adjusted_rand_score([int(key) // 6 for key in found.keys], groups.labels) == 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("each", [3, 5])
def test_two_groups_among_few_clients_of_which_half_take_part(each: int, seed: int) -> None:
    always = planted(2, each, own=0.3, seed=seed)
    evidence, _ = seen(always, rounds=8, noise=0.5, per_round=each, seed=seed)
    found = evidence.differences()
    groups = separation(found, most=8)
    assert groups.clear(0.15)
    assert adjusted_rand_score([int(key) // each for key in found.keys], groups.labels) == 1.0


@pytest.mark.parametrize("noise", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("clients", [8, 20, 60])
@pytest.mark.parametrize("spread", [np.ones(DIMENSION), np.geomspace(1, 0.01, DIMENSION)])
def test_clients_that_merely_differ_are_no_groups(
    spread: Floats, clients: int, noise: float
) -> None:
    for seed in range(4):
        always = spread * np.random.default_rng(seed).normal(size=(clients, DIMENSION))
        evidence, _ = seen(always, rounds=4, noise=noise, seed=seed)
        assert not separation(evidence.differences(), most=8, seed=seed).clear(0.15)


def test_noise_alone_is_no_group() -> None:
    for seed in range(10):
        evidence, _ = seen(np.zeros((12, DIMENSION)), rounds=3, noise=1.0, seed=seed)
        assert not separation(evidence.differences(), most=8).clear(0.15)


def test_the_noise_of_a_mean_is_known() -> None:
    """The variance between clients, noise subtracted, is right whatever the number of rounds."""
    rng = np.random.default_rng(0)
    clients, rounds = np.tile(np.arange(200), 4), np.repeat(np.arange(4), 200)
    always, noise = rng.normal(size=(200, 3)), 2.0 * rng.normal(size=(800, 3))
    rows = always[clients] + noise + rounds[:, None]
    effects, common = additive(rows, clients, rounds)
    left = rows - effects[clients] - common[rounds]
    between = np.sum(effects**2) / 199 - np.sum(left**2) / (800 - 200 - 3) / 4
    assert between == pytest.approx(np.sum(np.var(always, axis=0, ddof=1)), rel=0.15)


def test_who_took_part_when_does_not_look_like_a_difference() -> None:
    """In round 0 mostly one group takes part, in round 1 the other: their means differ."""
    rows = np.array([[1.0], [1.0], [1.0], [0.0], [1.0], [0.0], [0.0], [0.0]])
    clients, rounds = np.array([0, 1, 2, 3, 0, 3, 4, 5]), np.repeat([0, 1], 4)
    effects, common = additive(rows, clients, rounds)
    np.testing.assert_allclose(effects.ravel(), [0.5, 0.5, 0.5, -0.5, -0.5, -0.5], atol=0.02)
    np.testing.assert_allclose(effects[clients] + common[rounds], rows, atol=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_effects_are_those_of_sweeps_over_all_observations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounds = np.repeat(np.arange(6), 9)
    clients = np.concatenate([rng.choice(20, 9, replace=False) for _ in range(6)])
    clients = np.unique(clients, return_inverse=True)[1]
    rows, effects = rng.normal(size=(54, 4)), np.zeros((clients.max() + 1, 4))

    def means(values: Floats, groups: NDArray[np.intp]) -> Floats:
        return np.array([values[groups == g].mean(axis=0) for g in range(groups.max() + 1)])

    for _ in range(10):
        common = means(rows - effects[clients], rounds)
        effects = means(rows - common[rounds], clients)
        effects -= effects.mean(axis=0)
    ours = additive(rows, clients, rounds)
    np.testing.assert_allclose(ours[0], effects, atol=1e-12)
    np.testing.assert_allclose(ours[1], means(rows - effects[clients], rounds), atol=1e-12)


def test_noise_is_what_neither_clients_nor_rounds_explain() -> None:
    evidence, _ = seen(planted(2, 6), rounds=5, noise=1.0)
    found = evidence.differences()
    rows, clients, rounds = found.observed
    left = rows - found.means[clients] - found.common[rounds]
    expected = np.sum(left**2, axis=0) / (60 - 12 - 5 + 1)
    np.testing.assert_allclose(found.noise_along(np.eye(DIMENSION)), expected, rtol=1e-12)


@pytest.mark.parametrize("points", [5, 60])
def test_main_directions_are_the_singular_vectors(points: int) -> None:
    means = np.random.default_rng(points).normal(size=(points, 12)) * np.geomspace(1, 0.01, 12)
    lengths, directions = _main_directions(means - means.mean(axis=0), 12)
    expected = np.linalg.svd(means - means.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(lengths, expected[expected > 1e-9], rtol=1e-6)
    np.testing.assert_allclose(directions.T @ directions, np.eye(len(lengths)), atol=1e-8)


@pytest.mark.parametrize("clients", [0, 1, 5])
def test_too_few_clients_are_one_group(clients: int) -> None:
    evidence = Evidence()
    evidence.add([str(i) for i in range(clients)], np.eye(8)[:clients])
    groups = separation(evidence.differences(), most=4)
    assert (groups.parts, len(groups.labels)) == (1, clients)
    assert not groups.clear(1.0)


def test_a_round_without_a_number_comes_after_the_last() -> None:
    evidence = Evidence()
    for key, number in (("a", None), ("b", None), ("late", 1), ("c", None), ("d", 7), ("e", None)):
        evidence.add([key], [[1.0, 0.0]], number)
    kept = [evidence.of_round(number)[0] for number in range(1, 9)]
    assert kept == [["a", "late"], ["b"], ["c"], [], [], [], ["d"], ["e"]]


def test_only_the_last_observations_are_kept() -> None:
    evidence = Evidence(capacity=5)
    for number in range(4):
        evidence.add([f"{number}a", f"{number}b", "zero"], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert evidence.differences().keys == ["1b", "2a", "2b", "3a", "3b"]
    fresh = Evidence(capacity=5)
    fresh.load_state_dict(evidence.state_dict())
    np.testing.assert_equal(fresh.state_dict(), evidence.state_dict())
    with pytest.raises(ValueError, match="5 observations of 4 clients"):
        fresh.load_state_dict({**evidence.state_dict(), "keys": list("abcd")})


def test_nothing_is_known_before_somebody_was_seen() -> None:
    found = Evidence().differences()
    assert (found.keys, found.means.shape, found.common.shape) == ([], (0, 0), (0, 0))
    assert found.degrees == 0
