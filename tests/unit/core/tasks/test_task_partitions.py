import numpy as np
import pytest
from forager.core.tasks import TaskError, TaskSpec
from forager.core.tasks.datasets import RawData
from forager.core.tasks.partitions import PARTITIONERS, partition, user_groups


def pool(samples=600, classes=10, users=None):
    labels = np.sort(np.random.default_rng(0).integers(0, classes, samples))
    none = np.zeros((0, 1))
    return RawData(np.zeros((samples, 1)), labels, none, labels[:0], users, num_classes=classes)


@pytest.fixture
def spec(tmp_path):
    def make(kind, **settings):
        return TaskSpec(partition=kind, cache_dir=str(tmp_path), **settings)

    return make


USERS = np.repeat(np.arange(30), 20)


@pytest.mark.parametrize("kind", PARTITIONERS)
def test_partitions_are_disjoint_and_repeat(spec, kind, tmp_path):
    raw = pool(users=USERS)
    parts = partition(spec(kind), raw, 12)
    assert len(parts) == 12
    assert len(np.unique(parts.order)) == len(parts.order)
    assert parts.order.min() >= 0
    assert parts.order.max() < 600
    # shards drop what does not fill a shard, nothing else drops anything
    assert len(parts.order) == 600
    cached = next((tmp_path / "partitions").glob(f"{kind}-*.npz"))
    cached.unlink()
    again = partition(spec(kind), raw, 12)
    assert np.array_equal(again.order, parts.order)
    assert np.array_equal(again.offsets, parts.offsets)


def test_another_seed_shuffles_the_samples(spec):
    first, second = (partition(spec("iid", seed=seed), pool(), 12) for seed in (0, 1))
    assert first.order.tolist() != second.order.tolist()


@pytest.mark.parametrize("kind", ["dirichlet", "shards", "pathological"])
def test_another_seed_gives_clients_other_classes(spec, kind):
    raw = pool()

    def classes(seed):
        parts = partition(spec(kind, seed=seed), raw, 12)
        return [set(raw.y_train[parts[client]]) for client in range(12)]

    assert classes(0) != classes(1)


def test_iid_sizes_are_even_and_labels_mixed(spec):
    raw = pool(605)
    parts = partition(spec("iid"), raw, 10)
    assert {len(parts[client]) for client in range(10)} == {60, 61}
    assert all(len(np.unique(raw.y_train[parts[client]])) >= 8 for client in range(10))


def test_small_alpha_skews_labels(spec):
    raw = pool(2000)

    def largest_class_share(alpha):
        parts = partition(spec("dirichlet", alpha=alpha), raw, 8)
        counts = [np.bincount(raw.y_train[parts[client]], minlength=10) for client in range(8)]
        return np.mean([count.max() / count.sum() for count in counts])

    assert largest_class_share(0.1) > 0.4
    assert largest_class_share(100.0) < 0.2


def test_shards_are_equal_and_hold_few_classes(spec):
    raw = pool()
    parts = partition(spec("shards", shards_per_client=3), raw, 20)
    for client in range(20):
        assert len(parts[client]) == 30
        # a shard of 10 out of runs of about 60 equal labels crosses one border at most
        assert len(np.unique(raw.y_train[parts[client]])) <= 6


def test_pathological_gives_the_number_of_classes(spec):
    raw = pool()
    parts = partition(spec("pathological", classes_per_client=3), raw, 20)
    classes = [np.unique(raw.y_train[parts[client]]) for client in range(20)]
    assert {len(held) for held in classes} == {3}
    assert len(np.unique(np.concatenate(classes))) == 10


def test_natural_users_one_each_or_in_groups(spec):
    names = np.array(
        [f"user-{number:02}" for number in np.random.default_rng(1).permutation(USERS)]
    )
    raw = pool(users=names)
    each = partition(spec("natural"), raw, 30)
    for client in range(30):
        assert set(names[each[client]]) == {f"user-{client:02}"}
    grouped = partition(spec("natural"), raw, 7)
    owners = [set(names[grouped[client]]) for client in range(7)]
    assert {len(owner) for owner in owners} == {4, 5}
    assert set.union(*owners) == set(names)
    assert sum(map(len, owners)) == 30


def test_users_unknown_to_the_training_pool_belong_to_nobody():
    raw = pool(users=USERS)
    groups = user_groups(raw, 30, np.array([0, 29, 30, -5]))
    assert groups.tolist() == [0, 29, -1, -1]


def test_more_clients_than_dirichlet_can_feed_leaves_some_empty(spec):
    parts = partition(spec("dirichlet"), pool(100), 90)
    sizes = np.diff(parts.offsets)
    assert sizes.sum() == 100
    assert sizes.min() == 0
    assert 1 in sizes


def test_cache_depends_on_labels_settings_and_number(spec, tmp_path):
    partition(spec("dirichlet"), pool(), 5)
    partition(spec("dirichlet"), pool(), 6)
    partition(spec("dirichlet", alpha=0.7), pool(), 5)
    partition(spec("dirichlet", seed=3), pool(), 5)
    partition(spec("dirichlet"), pool(599), 5)
    partition(spec("dirichlet", shards_per_client=9), pool(), 5)  # plays no part
    assert len(list((tmp_path / "partitions").iterdir())) == 5


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "pathological"])
@pytest.mark.parametrize("clients", [0, -1, 21])
def test_impossible_number_of_clients(spec, kind, clients):
    expected = f"num-clients = {clients} is not allowed: use 1 to 20"
    with pytest.raises(TaskError, match=expected):
        partition(spec(kind, shards_per_client=1), pool(20), clients)


def test_impossible_settings(spec):
    with pytest.raises(TaskError, match=r"split.shards-per-client = 3 .* at most 2 for 10 clients"):
        partition(spec("shards", shards_per_client=3), pool(20), 10)
    with pytest.raises(TaskError, match=r"split.classes-per-client = 11 .* at most 10"):
        partition(spec("pathological", classes_per_client=11), pool(), 10)
    with pytest.raises(TaskError, match=r"'pathological' .*num-clients = 19"):
        partition(spec("pathological", classes_per_client=9), pool(30), 19)
    with pytest.raises(TaskError, match="needs data with users"):
        partition(spec("natural"), pool(), 10)
    with pytest.raises(TaskError, match=r"num-clients = 31 .* at most 30"):
        partition(spec("natural"), pool(users=USERS), 31)
