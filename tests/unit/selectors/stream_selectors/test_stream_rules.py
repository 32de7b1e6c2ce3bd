from collections import Counter

import numpy as np
import pytest
from forager.selectors.stream_selectors.base import Offered
from forager.selectors.stream_selectors.plain import Fifo, Reservoir, Unlimited
from forager.selectors.stream_selectors.ranked import (
    FedBalancer,
    GradientNorm,
    HighLoss,
    RecentScores,
    Sld,
)

RNG = np.random.default_rng(0)


def batch(start: int, count: int) -> Offered:
    return Offered(np.arange(start, start + count), np.zeros(count, dtype=int))


def test_every_arrival_is_as_likely_to_be_in_the_reservoir() -> None:
    times: Counter[int] = Counter()
    for seed in range(600):
        rule = Reservoir(5, seed)
        for start in range(0, 50, 10):
            rule.offer(batch(start, 10))
        times.update(rule.kept.tolist())
    counts = np.array([times[key] for key in range(50)])  # 60 expected, deviation 7.3
    assert counts.sum() == 3000
    assert ((counts - 60) ** 2 / 54).sum() < 95  # chi-square, 50 cells: 1 in 10,000


def test_how_arrivals_are_cut_into_batches_does_not_matter() -> None:
    whole, parts = Reservoir(4, 7), Reservoir(4, 7)
    whole.offer(batch(0, 60))
    for start in range(0, 60, 5):
        parts.offer(batch(start, 5))
    assert whole.kept.tolist() == parts.kept.tolist()


def test_fifo_has_the_latest() -> None:
    rule = Fifo(3)
    assert rule.offer(batch(0, 2)).evicted.size == 0
    decision = rule.offer(batch(2, 9))
    assert (decision.kept.tolist(), decision.evicted.tolist()) == ([6, 7, 8], [0, 1])
    assert rule.kept.tolist() == [8, 9, 10]


@pytest.mark.parametrize("rule", [HighLoss(6), GradientNorm(6)])
def test_ranked_rules_have_the_highest(rule: HighLoss | GradientNorm) -> None:
    scores = RNG.permutation(100).astype(float)
    for start in range(0, 100, 7):
        part = scores[start : start + 7]
        keys = np.arange(start, start + len(part))
        rule.offer(Offered(keys, keys % 3, losses=part, gradient_norms=part))
    assert sorted(rule.values.tolist()) == [94, 95, 96, 97, 98, 99]
    assert scores[rule.kept].tolist() == rule.values.tolist()
    assert rule.labels.tolist() == (rule.kept % 3).tolist()


def test_the_window_has_numpys_quantiles_of_the_last_fifty() -> None:
    recent, scores = RecentScores(50), RNG.integers(0, 30, 200).astype(float)
    for number, score in enumerate(scores.tolist()):
        recent.add(score)
        window = scores[max(0, number - 49) : number + 1]
        for share in (0.5, 0.9):
            assert recent.quantile(share) == pytest.approx(np.quantile(window, share))


@pytest.mark.parametrize(("rule", "share"), [(FedBalancer(9), 0.9), (Sld(9), 0.5)])
def test_what_is_above_the_quantile_of_the_last_fifty_is_not_stored(
    rule: FedBalancer | Sld, share: float
) -> None:
    scores = RNG.lognormal(size=400)
    allowed = [
        key
        for key in range(400)
        if key == 0 or scores[key] <= np.quantile(scores[max(0, key - 50) : key], share)
    ]
    for start in range(0, 400, 32):
        part, keys = scores[start : start + 32], np.arange(start, min(400, start + 32))
        rule.offer(Offered(keys, keys * 0, losses=part, gradient_norms=part))
    best = sorted(allowed, key=lambda key: scores[key])[-9:]
    assert sorted(rule.kept.tolist()) == sorted(best)


def test_the_window_survives_a_restart() -> None:
    whole, losses = FedBalancer(5), RNG.lognormal(size=200)
    whole.offer(Offered(np.arange(120), np.zeros(120, int), losses=losses[:120]))
    again = FedBalancer(5)
    again.load_state_dict(whole.state_dict())
    rest = Offered(np.arange(120, 200), np.zeros(80, int), losses=losses[120:])
    assert again.offer(rest).kept.tolist() == whole.offer(rest).kept.tolist()


def test_unlimited_keeps_all_once() -> None:
    rule = Unlimited(0)
    assert len(rule.offer(batch(0, 40)).kept) == 40
    assert len(rule.offer(batch(20, 40)).kept) == 20
    assert len(rule) == 60


def test_what_goes_and_comes_back_in_one_batch_has_not_changed() -> None:
    rule = HighLoss(1)
    rule.offer(Offered([1], [0], losses=[1.0]))
    decision = rule.offer(Offered([2, 1], [0, 0], losses=[2.0, 3.0]))
    assert (decision.kept.tolist(), decision.evicted.tolist()) == ([], [])
    assert rule.kept.tolist() == [1]
    decision = rule.offer(Offered([3, 4], [0, 0], losses=[4.0, 5.0]))
    assert (decision.kept.tolist(), decision.evicted.tolist()) == ([1], [1])


def test_batches_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="losses: expected 2 as in keys"):
        HighLoss(3).offer(Offered([1, 2], [0, 0], losses=[1.0]))
    with pytest.raises(ValueError, match="labels: expected 2 numbers"):
        Fifo(3).offer(Offered([1, 2], [0]))
    with pytest.raises(ValueError, match="keys: expected whole numbers"):
        Fifo(3).offer(Offered([1.5], [0]))
