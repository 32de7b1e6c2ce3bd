"""FedCor: covariances of losses, and the greatest expected drop."""

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.fedcor import FedCor, covariance_factors, greatest_drop

GROUPS = np.repeat([0, 1, 2], [8, 3, 1])  # clients whose losses change together


def crowd(losses):
    sizes = np.full(len(losses), 5.0)
    return Candidates([str(i) for i in range(len(losses))], {"loss": losses, "num-examples": sizes})


def trained(rule, rounds, rng, count=3):
    """Rounds in which the losses of a group fall together, each group by its own."""
    losses, chosen = np.full(12, 5.0), []
    for _ in range(rounds):
        chosen.append(rule.select(crowd(losses.copy()), count, rng).tolist())
        falls = rng.random(3)[GROUPS]
        losses = losses - falls + rng.normal(scale=0.01, size=12)
    return chosen


def test_the_covariance_is_found_from_few_rounds() -> None:
    rng = np.random.default_rng(0)
    loads = rng.normal(size=(30, 3))
    changes = rng.normal(size=(4000, 3)) @ loads.T + rng.normal(scale=0.5, size=(4000, 30))
    factors, noise = covariance_factors(changes, 3)
    assert noise == pytest.approx(0.25, rel=0.05)
    np.testing.assert_allclose(factors @ factors.T, loads @ loads.T, atol=0.6)


def test_the_covariance_has_the_main_variances_of_the_changes() -> None:
    """Where noise is fitted too, the likeliest covariance keeps them as they are."""
    changes = np.random.default_rng(0).normal(size=(40, 6)) * [5, 3, 2, 1, 1, 1]
    factors, noise = covariance_factors(changes, 2)
    fitted = np.linalg.eigvalsh(factors @ factors.T + noise * np.eye(6))
    found = np.linalg.eigvalsh(np.cov(changes.T, bias=True))
    np.testing.assert_allclose(fitted[4:], found[4:])
    np.testing.assert_allclose(fitted[:4], found[:4].mean())


def test_each_drop_is_that_of_the_posterior_covariance() -> None:
    """Against the equations on the whole matrix, conditioned client by client."""
    rng = np.random.default_rng(1)
    factors, noise, shares = rng.normal(size=(9, 3)), 0.2, rng.dirichlet(np.ones(9))
    sigma, left, expected = factors @ factors.T + noise * np.eye(9), set(range(9)), []
    for _ in range(4):
        drops = {k: sigma[:, k] @ shares / np.sqrt(sigma[k, k]) for k in left}
        expected.append(best := max(drops, key=drops.get))
        left.remove(best)
        sigma = sigma - np.outer(sigma[:, best], sigma[best]) / sigma[best, best]
    assert greatest_drop(factors, noise, shares, np.ones(9), 4).tolist() == expected


def test_after_the_warm_up_every_group_that_changes_together_has_one_client() -> None:
    rule = FedCor(warm_up=12, every=50)
    chosen = trained(rule, 16, np.random.default_rng(0))
    assert all({*GROUPS[each]} == {0, 1, 2} for each in chosen[13:])
    assert any({*GROUPS[each]} != {0, 1, 2} for each in chosen[:12])


def test_only_what_random_clients_do_to_the_losses_is_learnt() -> None:
    """The authors draw them for it: what the rule's own choices do would confirm the rule."""
    rng, rule = np.random.default_rng(0), FedCor(warm_up=12, every=4)
    chosen, known = [], []
    losses = np.full(12, 5.0)
    for _ in range(60):
        chosen.append({*GROUPS[rule.select(crowd(losses.copy()), 3, rng)]})
        known.append(rule._rounds())
        losses = losses - rng.random(3)[GROUPS] + rng.normal(scale=0.01, size=12)
    drawn = [chosen[number] for number in range(16, 60, 4)]
    assert all(groups == {0, 1, 2} for n, groups in enumerate(chosen[13:], 13) if n % 4)
    assert any(groups != {0, 1, 2} for groups in drawn)
    learnt = [number for number in range(1, 60) if known[number] > known[number - 1]]
    assert learnt == [*range(1, 13), *range(17, 60, 4)][: len(learnt)]


def test_losses_are_asked_for_in_the_warm_up_and_then_around_each_random_round() -> None:
    rule, asked = FedCor(warm_up=3, every=5), []
    for _ in range(14):
        asked.append(rule.asks())
        rule.select(crowd(np.ones(4)), 2, np.random.default_rng(0))
    assert [i for i, each in enumerate(asked) if each] == [0, 1, 2, 3, 8, 9, 13]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="warm_up=0"):
        FedCor(warm_up=0)
    with pytest.raises(ValueError, match="every=1"):
        FedCor(every=1)
