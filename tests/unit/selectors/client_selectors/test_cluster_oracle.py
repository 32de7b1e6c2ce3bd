import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.cluster_oracle import ClusterOracle, clusters_of


def crowd(histograms: list[list[float]]) -> Candidates:
    keys = [str(i) for i in range(len(histograms))]
    return Candidates(keys, {"histogram": np.array(histograms)})


def turns(selector: ClusterOracle, candidates: Candidates, count: int, times: int) -> list:
    rng = np.random.default_rng(0)
    return [selector.select(candidates, count, rng).tolist() for _ in range(times)]


THREE_KINDS = [[9, 1, 0], [0, 9, 1], [18, 3, 0], [0, 0, 5], [0, 70, 9], [8, 1, 0]]


def test_one_of_each_cluster_in_turn() -> None:
    # {0, 2, 5}, {1, 4} and {3}
    chosen = turns(ClusterOracle(), crowd(THREE_KINDS), 3, 4)
    assert chosen == [[0, 1, 3], [2, 3, 4], [1, 3, 5], [0, 3, 4]]


def test_the_amount_of_data_does_not_matter() -> None:
    labels = clusters_of(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]), 2)
    assert labels[0] == labels[1] != labels[2]
    chosen = turns(ClusterOracle(), crowd([[9, 1], [900, 100], [1, 9]]), 2, 2)
    assert chosen == [[0, 2], [1, 2]]


def test_too_few_different_histograms_are_filled_up_in_turn() -> None:
    chosen = turns(ClusterOracle(), crowd([[1, 0]] * 4 + [[0, 1]]), 3, 3)
    assert all(4 in positions and len(positions) == 3 for positions in chosen)
    assert {i for positions in chosen[:2] for i in positions} == {0, 1, 2, 3, 4}


def test_a_change_of_the_clients_is_noticed() -> None:
    selector = ClusterOracle()
    turns(selector, crowd(THREE_KINDS), 3, 1)
    # now {0, 3, 5}, {1, 4} and {2}, and the names 0, 1 and 3 have just had their turn
    assert turns(selector, crowd(THREE_KINDS[::-1]), 3, 1) == [[2, 4, 5]]
    assert len(turns(selector, crowd(THREE_KINDS), 2, 1)[0]) == 2


def test_clients_without_data_are_a_kind_too() -> None:
    chosen = turns(ClusterOracle(), crowd([[0, 0], [3, 1], [0, 0]]), 2, 2)
    assert chosen == [[0, 1], [1, 2]]


@pytest.mark.parametrize("bad", [[[1, -1]], [[np.nan, 1]], [1.0]])
def test_histograms_must_be_counts(bad: list) -> None:
    with pytest.raises(ValueError, match="histogram: expected label counts from 0 on"):
        turns(ClusterOracle(), crowd(bad), 1, 1)


def test_it_is_marked_as_an_oracle() -> None:
    assert ClusterOracle.oracle
    assert ClusterOracle.needs == {"histogram"}
