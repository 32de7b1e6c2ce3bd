"""Names that others import, with what they mean: a move or a diet must not lose one."""

import numpy as np
import pytest
import torch
from forager.core.config import ConfigError, default_config, read_config
from forager.core.learning.gradients import fisher_diagonal, head_gradients
from forager.core.wire import sparse
from forager.selectors.client_selectors.age import next_ages, oldest
from forager.selectors.client_selectors.cosage import cosage
from forager.selectors.client_selectors.dissimilarity import (
    most_dissimilar,
    sampling_probabilities,
)
from forager.selectors.cohorts.exploration import exploration_rate
from forager.selectors.cohorts.heterogeneity import heterogeneity
from forager.selectors.cohorts.online import assign
from forager.selectors.cohorts.rewards import decayed, instant_reward
from forager.selectors.cohorts.tree import CohortTree
from forager.selectors.data_selectors.budgets import split_budget
from forager.selectors.data_selectors.crust import crust
from forager.selectors.data_selectors.facility_location import facility_location
from forager.selectors.data_selectors.matching_pursuit import matching_pursuit
from forager.selectors.similarities.histograms import js_divergence
from forager.selectors.similarities.index_overlap import (
    centred_overlap_matrix,
    choose_k,
    overlap,
    overlap_matrix,
    stability,
    top_k_support,
)
from forager.selectors.similarities.minhash import MinHashIndex, overlap_from_jaccard
from forager.selectors.similarities.power_norm import power_cosine
from forager.selectors.similarities.signed_overlap import signed_overlap
from forager.selectors.similarities.valuation import knn_shapley
from forager.selectors.stream_selectors.ode import (
    GlobalGradient,
    RunningGradient,
    ValueStore,
    coordinate,
)
from forager.tools.engine import run_local


def test_cosage_and_its_baselines():
    u, v = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    assert power_cosine(u, u) == pytest.approx(1)
    assert power_cosine(u, np.negative(u)) == -1
    assert power_cosine(u, v, p=2) == pytest.approx(10 / 14)
    assert power_cosine(u, v, p=2, form="printed") == pytest.approx(0.0732, abs=1e-4)
    assert power_cosine(u, [u, v], p=4.0).shape == (2,)
    chosen = cosage([0.9, 0.1, -0.5, 0.8, 0.3], [1, 2, 0, 4, 2], 2, silent_ratio=0.6)
    assert chosen.tolist() == [4, 3]
    assert oldest([1, 3, 3], 2).tolist() == [1, 2]
    assert next_ages([0, 3, 1], [1]).tolist() == [1, 0, 2]
    assert next_ages([0, 3], []).tolist() == [1, 4]
    with pytest.raises(ValueError, match="chosen: expected positions below 2"):
        next_ages([0, 3], [2])
    assert most_dissimilar([0.2, -0.4, 0.9, -0.4], 3).tolist() == [1, 3, 0]
    assert sampling_probabilities([1.0, 0.0, 0.5]).round(3).tolist() == [0, 0.667, 0.333]


def test_sparse_updates():
    update = np.array([0.0, -3.0, 1.0, 2.0], dtype=np.float32)
    assert sparse.decode(sparse.encode(update, 2)).tolist() == [0, -3, 0, 2]


def test_coresets():
    gradients = np.eye(3)
    found = matching_pursuit(gradients, [2.0, 0.0, 1.0], 2, ridge=0.0)
    assert sorted(found.indices) == [0, 2]
    assert len(found.weights) == 2
    assert found.residuals[-1] == pytest.approx(0, abs=1e-9)
    also = matching_pursuit(
        gradients, [2.0, 0.0, 1.0], 2, rule="projection", tolerance=1e-4, step=1
    )
    assert sorted(also.indices) == [0, 2]
    assert split_budget([6, 3, 1], 5).sum() == 5
    assert facility_location([[0.0], [1.0], [2.0], [7.0], [10.0], [11.0]], 2).tolist() == [3, 1]
    assert crust([[0.0], [0.1], [0.2], [5.0], [5.1], [99.0]], 2, radius=1.0).tolist() == [1, 3]


def test_gradients():
    features, labels = np.array([[1.0, 2.0]]), np.array([1])
    rows = head_gradients(features, np.zeros((2, 2)), np.zeros(2), labels)
    assert rows.tolist() == [[[0.5, 0.5, 1.0], [-0.5, -0.5, -1.0]]]
    model = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    found = fisher_diagonal(
        model,
        lambda outputs, targets: ((outputs - targets) ** 2).sum(),
        torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        torch.tensor([[1.0], [1.0]]),
    )
    assert found.tolist() == [2.0, 8.0]  # means of (2 * 1)^2 and (2 * 2)^2 over two samples


def test_streams():
    mean = RunningGradient()
    mean.update([1.0])
    mean.update([3.0])
    assert mean.mean.tolist() == [2.0]
    whole = GlobalGradient({"a": 0.75, "b": 0.25})
    whole.report({"a": [4.0], "b": [0.0]})
    assert whole.estimate.tolist() == [3.0]
    taken = GlobalGradient({"a": 0.5, "b": 0.5}, mode="participants")
    taken.report({"a": [4.0]})
    assert taken.estimate.tolist() == [4.0]
    plan = coordinate([[4.0, 2.0], [1.0, 3.0]], [4, 4], clients_per_label=2, labels_per_client=2)
    assert plan.quota.sum(axis=1).tolist() == [4, 4]
    assert plan.class_weights.shape == (2,)
    store = ValueStore(1)
    assert store.offer("a", 1.0) is None
    assert store.offer("b", 2.0) == "a"
    assert list(store.keys()) == ["b"]


def test_cohorts():
    assert instant_reward([1.0, 1.0, 4.0]).round(3).tolist() == [0.707, 0.707, -0.172]
    assert decayed(0.0, 1.0, rate=0.2) == pytest.approx(0.2)
    tree = CohortTree()
    children = tree.split("0", 2)
    assert list(children) == ["0.0", "0.1"]
    assert sorted(tree.leaves()) == ["0.0", "0.1"]
    tree.split("0.1", 2)
    assert tree.distance("0.1.0", "0.1.1") == 1
    assert tree.distance("0.1.0", "0.0") == 2
    assert exploration_rate(2, initial=0.3, decay=0.5) == pytest.approx(0.075)
    assert heterogeneity([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]], [0, 0, 1]) == 2.0
    updates = np.eye(2).repeat(2, axis=0)
    assert assign(updates, [0, -1, 1, -1], 2).tolist() == [0, 0, 1, 1]


def test_similarities():
    first, second = top_k_support([3.0, 0.0, 2.0, 1.0], 2), top_k_support([0.0, 0.0, 2.0, 1.0], 2)
    assert first.tolist() == [0, 2]
    assert overlap(first, second) == 0.5
    assert overlap_matrix([first, second]).tolist() == [[1, 0.5], [0.5, 1]]
    assert choose_k([8.0, 1.0, 1.0], 0.8, 3) == 1
    assert 0 <= stability([first, second]) <= 1
    assert centred_overlap_matrix([first, second]).shape == (2, 2)
    assert signed_overlap([0, 1, 4], [1, -1, 1], [1, 4, 9], [-1, -1, 1]) == 0
    assert signed_overlap([0, 1], [1, -1], [0, 1], [-1, 1]) == -1
    assert signed_overlap([0, 1], [1, 0], [0, 1], [1, 1]) == 0.5
    with pytest.raises(ValueError, match="signs: expected one per index, 2 and 1"):
        signed_overlap([0, 1], [1], [0], [1])
    assert js_divergence([5, 5, 0], [1, 1, 0]) == 0
    assert js_divergence([1, 0], [0, 1]) == 1
    index = MinHashIndex(64, 16, 0)
    index.add("a", [1, 2, 3])
    index.add("b", [1, 2, 3])
    assert set(index.query([1, 2, 3])) == {"a", "b"}
    assert index.jaccard("a", "b") == 1
    assert overlap_from_jaccard(1 / 3) == pytest.approx(0.5)
    assert np.shape(knn_shapley([True, False, True], 1)) == (3,)


def test_settings_and_runs(tmp_path):
    flat = default_config()
    assert read_config(flat).strategy == flat["strategy"]
    assert issubclass(ConfigError, ValueError)
    with pytest.raises(ConfigError, match="strategy"):
        read_config({**flat, "strategy": "cosagee"})
    run = run_local({"num-server-rounds": 1, "num-clients": 2, "output-dir": str(tmp_path)})
    assert run.folder.is_dir()
    assert run.reason == "completed"
    assert {"round", "accuracy"} <= run.rounds[-1].keys()
