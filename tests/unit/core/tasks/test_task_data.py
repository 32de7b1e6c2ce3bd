import dataclasses
import random
import subprocess
import sys
import threading
from pathlib import Path

import forager.core.tasks.backbones
import forager.core.tasks.pool
import numpy as np
import pytest
import torch
from forager.core.tasks import Classification, ClientData, Split, TaskError, TaskSpec, load_task
from forager.core.tasks.splits import ClientCache, stratified_split

ROOT = Path(__file__).parents[4]
COUNT = 300


@pytest.fixture
def spec(tmp_path):
    """Task whose every sample is recognised by its first feature."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.arange(2 * COUNT)[:, None], rng.random((2 * COUNT, 3))], axis=1)
    users = rng.permutation(np.repeat(np.arange(20), COUNT // 20))
    np.savez(
        tmp_path / "data.npz",
        x_train=x[:COUNT],
        y_train=rng.integers(0, 6, COUNT),
        x_test=x[COUNT:],
        y_test=rng.integers(0, 6, COUNT),
        user_train=users,
        user_test=rng.permutation(users),
    )

    def make(**settings):
        path = settings.pop("path", str(tmp_path / "data.npz"))
        return TaskSpec(**{"task": "npz", "path": path, "cache_dir": str(tmp_path), **settings})

    return make


def numbers(*splits: Split) -> list[int]:
    return [int(number) for split in splits for number in split.x[:, 0]]


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "natural"])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_nobody_shares_a_sample(spec, partition, share):
    task = load_task(spec(partition=partition, client_test_share=share))
    server = task.server_data()
    clients = [task.client_data(client, 10) for client in range(10)]
    held = [part for client in clients for part in (client.train, client.test)]
    everyone = numbers(server.validation, server.test, *held)
    assert len(everyone) == len(set(everyone)) == 2 * COUNT
    assert len(server.validation) == 60


def test_tensors_have_the_promised_types(spec):
    task = load_task(spec())
    data = task.client_data(0, 10)
    for split in (data.train, data.test, task.server_data().test):
        assert split.x.dtype == torch.float32
        assert split.y.dtype == torch.int64
        assert split.x.shape == (len(split), 4)
    assert data.clean.dtype == torch.bool
    assert torch.equal(data.true_labels, data.train.y)
    assert (task.input_shape, task.num_classes) == ((4,), 6)


def test_client_test_share(spec):
    plain = load_task(spec(partition="iid")).client_data(3, 10)
    shared = load_task(spec(partition="iid", client_test_share=0.2)).client_data(3, 10)
    assert (len(plain.train), len(plain.test)) == (30, 0)
    assert (len(shared.train), len(shared.test)) == (24, 6)
    assert set(numbers(shared.train, shared.test)) == set(numbers(plain.train))


def test_natural_users_keep_half_of_their_test_samples(spec, tmp_path):
    with np.load(tmp_path / "data.npz") as file:
        owner = dict(zip(file["x_test"][:, 0], file["user_test"], strict=True))
    task = load_task(spec(partition="natural", client_test_share=0.5, validation_share=0.0))
    for client in range(20):
        data = task.client_data(client, 20)
        assert len(data.train) == 15
        assert len(data.test) == 8
        assert {owner[number] for number in numbers(data.test)} == {client}
    assert len(task.server_data().test) == 20 * 7


def test_empty_and_single_sample_clients(spec):
    task = load_task(spec(alpha=0.05))
    clients = [task.client_data(client, 250) for client in range(250)]
    empty = next(client for client in clients if not len(client.train))
    assert empty.train.x.shape == (0, 4)
    assert empty.clean.shape == (0,)
    assert any(len(client.train) == 1 for client in clients)


def test_validation_is_stratified(spec):
    server = load_task(spec()).server_data()
    counts = torch.bincount(torch.cat([server.validation.y, server.test.y]))
    share = torch.bincount(server.validation.y) / counts
    assert (share - 0.2).abs().max() < 1 / counts.min()


def test_stratified_split_of_rare_classes_is_exact():
    labels = np.arange(50) // 2
    first, second = stratified_split(labels, 0.3, np.random.default_rng(0))
    assert len(first) == 15
    assert sorted([*first, *second]) == list(range(50))
    assert np.bincount(labels[first]).max() == 1


@pytest.mark.parametrize("noise", ["closed-set", "open-set", "attribute"])
def test_noise_is_per_client_and_seeded(spec, noise):
    task = load_task(spec(noise=noise, partition="iid"))
    again = load_task(spec(noise=noise, partition="iid", hidden=7))
    first, second, other = task.client_data(0, 5), again.client_data(0, 5), task.client_data(1, 5)
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.train.y, second.train.y)
    assert not first.clean.all()
    assert first.clean.tolist() != other.clean.tolist()
    changed = load_task(spec(noise=noise, partition="iid", seed=1)).client_data(0, 5)
    assert first.clean.tolist() != changed.clean.tolist()


@pytest.mark.parametrize("noise", ["closed-set", "attribute"])
def test_rate_zero_is_no_noise(spec, noise):
    plain = load_task(spec()).client_data(2, 5)
    noisy = load_task(spec(noise=noise, noise_rate=0.0)).client_data(2, 5)
    assert torch.equal(plain.train.x, noisy.train.x)
    assert torch.equal(plain.train.y, noisy.train.y)
    assert noisy.clean.all()


def test_open_set_halves_the_task_for_everyone(spec):
    task = load_task(spec(noise="open-set", client_test_share=0.2, noise_rate=0.3))
    assert task.num_classes == 3
    server = task.server_data()
    assert server.test.y.max() == server.validation.y.max() == 2
    for client in range(5):
        data = task.client_data(client, 5)
        assert data.train.y.max() <= 2
        assert data.test.y.max() <= 2
        assert torch.equal(data.clean, data.true_labels <= 2)
        assert (~data.clean).sum() > 0


def test_attribute_noise_knows_the_range_of_features(spec):
    task = load_task(spec(noise="attribute", noise_rate=1.0))
    data = task.client_data(0, 2)
    replaced = data.train.x[:, 0][data.train.x[:, 0] % 299 == 0]
    assert len(replaced) > 10  # the smallest and the largest number of all, many times


def test_model_and_head(spec):
    task = load_task(spec(model="softmax"))
    model = task.build_model()
    assert model(task.server_data().test.x).shape == (240, 6)
    assert isinstance(model.get_submodule(task.head), torch.nn.Linear)
    weights = model.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in task.build_model().state_dict().items())


def test_frozen_backbone_replaces_inputs_by_features(spec, tmp_path, monkeypatch):
    asked = []

    def features(name, x, cache_dir):
        asked.append((name, cache_dir))
        return x[:, :1].repeat(1, 2) * 10

    monkeypatch.setattr(forager.core.tasks.backbones, "features", features)
    monkeypatch.setattr(forager.core.tasks.backbones, "feature_size", lambda name: 2)
    plain = load_task(spec(alpha=0.05, partition="dirichlet"))
    task = load_task(spec(model="frozen:tiny", alpha=0.05, partition="dirichlet"))
    assert task.input_shape == (2,)
    data = task.client_data(0, 5)
    assert torch.equal(data.train.x[:, 0], plain.client_data(0, 5).train.x[:, 0] * 10)
    assert data.test.x.shape == (0, 2)
    assert task.server_data().test.x.shape == (240, 2)
    assert set(asked) == {("tiny", str(tmp_path))}


def test_device_brings_its_own_file(spec, tmp_path):
    x = np.random.default_rng(0).random((10, 4), dtype=np.float32)
    folder = tmp_path / "device"
    folder.mkdir()
    np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(10) % 6)
    task = load_task(spec(client_test_share=0.2, noise="closed-set"))
    data = task.device_data(str(folder))
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.clean.all()
    assert task.device_data(str(folder)) is data
    own_test = {"x_test": x[:3], "y_test": np.zeros(3, dtype=int)}
    np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(10) % 6, **own_test)
    data = load_task(spec(client_test_share=0.2)).device_data(str(folder / "mine.npz"))
    assert (len(data.train), len(data.test)) == (10, 3)


def test_device_without_the_pool_needs_only_the_number_of_classes(spec, tmp_path):
    np.savez(tmp_path / "mine.npz", x_train=np.zeros((3, 5)), y_train=np.array([0, 1, 1]))
    task = load_task(spec(path="elsewhere.npz", num_classes=4))
    assert len(task.device_data(str(tmp_path / "mine.npz")).train) == 3
    assert task.build_model()(torch.zeros(2, 5)).shape == (2, 4)
    with pytest.raises(TaskError, match=r"elsewhere\.npz.*set data.num-classes"):
        load_task(spec(path="elsewhere.npz")).device_data(str(tmp_path / "mine.npz"))


def test_the_own_model_of_a_task_tells_a_device_how_many_classes_there_are(tmp_path):
    np.savez(tmp_path / "mine.npz", x_train=np.zeros((3, 5)), y_train=np.array([0, 1, 1]))
    task = load_task(TaskSpec(task="test_task_data:Own"))
    assert len(task.device_data(str(tmp_path / "mine.npz")).train) == 3
    assert task.num_outputs == 4
    with pytest.raises(TaskError, match=r"does not end in an nn.Linear; .* set data.num-classes"):
        load_task(TaskSpec(task="test_task_data:Hidden")).device_data(str(tmp_path / "mine.npz"))


class Own(Classification):
    """Its samples are on devices only."""

    def data(self):
        raise AssertionError("a device has no pool")

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(5, 4))


class Hidden(Own):
    """Nothing shows the number of classes."""

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh())


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x_train": np.zeros((3, 5)), "y_train": np.zeros(3, int)}, "shape .5,., the task needs"),
        ({"x_train": np.zeros((3, 4)), "y_train": np.full(3, 6)}, "label 6"),
        ({"x_train": np.zeros((3, 4))}, "lacks y_train"),
        ({"x_train": np.zeros((3, 4)), "y_train": np.zeros(3, int), "x_test": 0}, "only one of"),
    ],
)
def test_device_file_that_does_not_fit(spec, tmp_path, arrays, expected):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(TaskError, match=expected):
        load_task(spec()).device_data(str(tmp_path / "mine.npz"))


def test_device_path_that_is_not_there(spec, tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        load_task(spec()).device_data(str(tmp_path / "none.npz"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match=r"empty: holds nothing; expected an \.npz file"):
        load_task(spec()).device_data(str(tmp_path / "empty"))


@pytest.mark.parametrize("client", [-1, 5])
def test_client_that_does_not_exist(spec, client):
    with pytest.raises(TaskError, match=f"partition_id = {client} .* 0 to 4"):
        load_task(spec()).client_data(client, 5)


def test_test_pool_too_small(spec, tmp_path):
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "small.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    with pytest.raises(TaskError, match=r"lower data.validation-share = 0\.9"):
        load_task(spec(path=str(tmp_path / "small.npz"), validation_share=0.9)).server_data()


def test_data_is_read_once_even_by_many_threads(spec, monkeypatch):
    reads = []
    load_raw = forager.core.tasks.pool.load_raw

    def counted(chosen, own):
        reads.append(chosen)
        return load_raw(chosen, own)

    monkeypatch.setattr(forager.core.tasks.pool, "load_raw", counted)
    task = load_task(spec(seed=77))
    found = []

    def ask(client):
        assert task.num_classes == 6
        found.append((task.server_data(), task.client_data(client % 3, 3)))

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 12
    assert len(reads) == 1
    assert len({id(server) for server, _ in found}) == 1
    assert len({id(client) for _, client in found}) == 3


def test_client_cache_forgets_the_least_recently_used():
    data = ClientData(*[Split(torch.zeros(10), torch.zeros(0))] * 2, torch.zeros(0), torch.zeros(0))
    made = []

    def ask(key):
        cache.get(key, lambda key: made.append(key) or dataclasses.replace(data))

    cache = ClientCache(limit=200)  # room for two of 80 bytes
    for key in ("a", "b", "a", "c", "a", "b", "b"):
        ask(key)
    assert made == ["a", "b", "c", "b"]


def test_global_generators_are_left_alone(tmp_path):
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = state()
    task = load_task(TaskSpec(noise="attribute", cache_dir=str(tmp_path)))
    task.client_data(0, 3)
    task.server_data()
    task.build_model()
    assert state() == before


def test_a_command_reads_a_config_without_torch():
    script = "import sys, forager.tools.cli.app; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_new_process_needs_no_heavy_imports(tmp_path):
    spec = TaskSpec(noise="closed-set", cache_dir=str(tmp_path))
    expected = load_task(spec).client_data(1, 10)
    script = f"""
import sys
import forager.core.tasks as tasks
data = tasks.load_task(tasks.{spec!r}).client_data(1, 10)
heavy = "sklearn", "flwr_datasets", "datasets", "torchvision", "PIL", "scipy", "pandas"
print(data.train.y.sum().item(), data.train.x.sum().item())
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sums = f"{expected.train.y.sum().item()} {expected.train.x.sum().item()}"
    assert done.stdout.splitlines() == [sums, "[]"]


def test_affine_shifts_are_a_groups_own(spec):
    moved, plain = load_task(spec(group_kind="affine-shift", group_count=2)), load_task(spec())
    shifts = [
        moved.client_data(i, 4).train.x[0] - plain.client_data(i, 4).train.x[0] for i in (0, 1)
    ]
    assert shifts[0].abs().max() > 0.1
    assert not torch.allclose(*shifts)
