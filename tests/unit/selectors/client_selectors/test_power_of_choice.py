import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.by_loss import PowerOfChoice


def crowd(size: int, **observations: list[float]) -> Candidates:
    named = {name.replace("_", "-"): np.array(v) for name, v in observations.items()}
    return Candidates([str(i) for i in range(size)], named)


def shortlists(selector: PowerOfChoice, candidates: Candidates, count: int) -> np.ndarray:
    """How often each was drawn in 2000 rounds."""
    rng, hits = np.random.default_rng(0), np.zeros(len(candidates), dtype=int)
    for _ in range(2000):
        hits[selector.shortlist(candidates, count, rng)] += 1
    return hits


@pytest.mark.parametrize(
    ("candidates", "count", "asked"), [(0, 3, 6), (5, 3, 5), (2, 3, 3), (0, 8, 10), (99, 3, 10)]
)
def test_how_many_are_asked(candidates: int, count: int, asked: int) -> None:
    rng = np.random.default_rng(0)
    drawn = PowerOfChoice(candidates).shortlist(crowd(10), count, rng)
    assert len(set(drawn.tolist())) == len(drawn) == asked


def test_the_draw_is_uniform_without_sizes() -> None:
    hits = shortlists(PowerOfChoice(3), crowd(6), 1)
    assert np.abs(hits - 1000).max() < 110


def test_the_draw_is_in_proportion_to_sizes() -> None:
    hits = shortlists(PowerOfChoice(1), crowd(4, num_examples=[10, 20, 50, 0]), 1)
    assert hits[3] == 0
    assert np.abs(hits[:3] - [250, 500, 1250]).max() < 100


def test_unknown_sizes_count_as_the_median() -> None:
    hits = shortlists(PowerOfChoice(1), crowd(4, num_examples=[10, np.nan, 20, 150]), 1)
    assert np.abs(hits - [100, 200, 200, 1500]).max() < 100
    hits = shortlists(PowerOfChoice(1), crowd(2, num_examples=[np.nan, np.nan]), 1)
    assert np.abs(hits - 1000).max() < 110


def test_the_highest_losses_of_those_asked_train() -> None:
    losses = [float(i) for i in range(10)]
    selector, rng = PowerOfChoice(4), np.random.default_rng(3)
    candidates = crowd(10, loss=losses)
    asked = selector.shortlist(candidates, 2, rng)
    chosen = asked[selector.select(candidates.take(asked), 2, rng)]
    assert chosen.tolist() == sorted(asked.tolist())[-1:-3:-1]
    assert chosen.tolist() != [9, 8]


def test_a_negative_number_of_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="candidates: expected 0 or more, got -1"):
        PowerOfChoice(-1)
