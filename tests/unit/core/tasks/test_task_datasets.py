import gzip
import json
import lzma
import pickle
import sys
import types

import numpy as np
import pytest
from forager.core.tasks import TaskError, TaskSpec, load_task
from forager.core.tasks.datasets import RawData, fashion_mnist, load_raw, newsgroups, rows, storage


def everything(inputs):
    return rows(inputs, np.arange(inputs.shape[0]))


def save(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.random((6, 4), dtype=np.float32),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.random((3, 4), dtype=np.float32),
        "y_test": np.array([0, 1, 2]),
    } | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def test_digits_are_scaled_stratified_and_seeded(tmp_path):
    raw = load_raw(TaskSpec(cache_dir=str(tmp_path)))
    assert raw.input_shape == (1, 8, 8)
    assert raw.num_classes == 10
    assert len(raw.y_train) + len(raw.y_test) == 1797
    assert raw.x_train.min() == 0
    assert raw.x_train.max() == 1
    shares = np.bincount(raw.y_test) / np.bincount(np.concatenate([raw.y_train, raw.y_test]))
    assert np.abs(shares - 0.2).max() < 0.01
    again = load_raw(TaskSpec(cache_dir=str(tmp_path)))
    other = load_raw(TaskSpec(cache_dir=str(tmp_path), seed=1))
    assert np.array_equal(again.x_train, raw.x_train)
    assert not np.array_equal(other.x_train, raw.x_train)


def test_blobs_widen_from_one_to_eight(tmp_path):
    raw = load_raw(TaskSpec(task="blobs", cache_dir=str(tmp_path)))
    assert raw.input_shape == (10,)
    widths = [raw.x_train[raw.y_train == label].std(axis=0).mean() for label in range(10)]
    assert widths == pytest.approx(np.linspace(1, 8, 10), rel=0.1)
    assert len(raw.y_test) * 0.8 == 0.15 * 10_000


def test_synthetic_users_differ_in_model_and_inputs(monkeypatch):
    monkeypatch.setattr("forager.core.tasks.datasets.synthetic.ALPHA", 0)
    monkeypatch.setattr("forager.core.tasks.datasets.synthetic.BETA", 0)
    alike = load_raw(TaskSpec(task="synthetic"))
    monkeypatch.setattr("forager.core.tasks.datasets.synthetic.BETA", 5)
    apart = load_raw(TaskSpec(task="synthetic"))
    assert set(alike.user_train) == set(alike.user_test) == set(range(200))
    sizes = np.bincount(alike.user_train) + np.bincount(alike.user_test)
    assert sizes.min() >= 50
    assert sizes.max() <= 10_000
    assert sizes.max() > 10 * np.median(sizes)

    def spread_of_means(raw):
        return np.std([raw.x_train[raw.user_train == user].mean() for user in range(200)])

    assert spread_of_means(alike) < 0.3
    assert spread_of_means(apart) > 4


def load_inputs(folder, inputs):
    path = save(folder / "inputs.npz", x_train=inputs, x_test=inputs[:3])
    return load_raw(TaskSpec(task="npz", path=path))


def test_npz_layouts(tmp_path):
    colour = np.arange(6 * 2 * 5 * 3, dtype=np.uint8).reshape(6, 2, 5, 3)
    raw = load_inputs(tmp_path, colour)
    assert raw.input_shape == (3, 2, 5)
    assert everything(raw.x_train)[1, 2, 0, 4] == np.float32(colour[1, 0, 4, 2]) / 255

    grey = np.full((6, 7, 7), 255, dtype=np.uint8)
    raw = load_inputs(tmp_path, grey)
    assert raw.input_shape == (1, 7, 7)
    assert everything(raw.x_train).max() == 1

    signal = np.ones((6, 9, 128), dtype=np.float16)
    raw = load_inputs(tmp_path, signal)
    assert raw.input_shape == (9, 128)
    assert everything(raw.x_train).dtype == np.float32


def test_npz_folder_with_one_file_and_label_column(tmp_path):
    save(tmp_path / "only.npz", y_test=np.array([[0], [1], [2]]))
    raw = load_raw(TaskSpec(task="npz", path=str(tmp_path)))
    assert raw.num_classes == 3
    assert raw.y_test.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": None}, "only one of x_train and y_train"),
        ({"y_train": np.array([0, 1])}, "one label per sample"),
        ({"y_train": np.array([0, 1, 2, 0, 1, -1])}, "label -1"),
        ({"y_train": np.array(["a"] * 6)}, "whole numbers"),
        ({"x_train": np.full((6, 4), np.nan)}, "NaN"),
        ({"x_test": np.full((3, 4), np.inf)}, "infinite"),
        ({"x_test": np.zeros((3, 5))}, "different shapes"),
        ({"x_train": np.array(["a"] * 6)}, "must hold numbers"),
        ({"x_train": np.array([{}] * 6)}, "cannot be read"),
        ({"user_train": np.arange(5)}, "user_train"),
    ],
)
def test_npz_with_wrong_content(tmp_path, changes, expected):
    path = save(tmp_path / "data.npz", **changes)
    with pytest.raises(TaskError, match=expected) as caught:
        load_raw(TaskSpec(task="npz", path=path))
    assert "data.npz" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "array", "pickle", "missing"])
def test_damaged_npz(tmp_path, damage):
    path = tmp_path / "data.npz"
    save(path)
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    written = {
        "cut": bytes(content[: len(content) // 2]),
        "flipped": bytes(content),
        "text": b"hello",
        "pickle": pickle.dumps([1]),
    }
    path.unlink()
    if damage == "array":
        with open(path, "wb") as file:
            np.save(file, np.zeros(3))
    elif damage in written:
        path.write_bytes(written[damage])
    with pytest.raises(TaskError, match=r"data\.npz"):
        load_raw(TaskSpec(task="npz", path=str(path)))


def test_number_of_classes_may_be_raised_but_not_lowered(tmp_path):
    path = save(tmp_path / "data.npz")
    assert load_raw(TaskSpec(task="npz", path=path, num_classes=5)).num_classes == 5
    with pytest.raises(
        TaskError, match=r"data.num-classes = 2 is not allowed: use 0 or at least 3"
    ):
        load_raw(TaskSpec(task="npz", path=path, num_classes=2))


def test_a_table_is_sent_to_the_task_that_reads_it(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b,label\n1,2,x\n")
    with pytest.raises(
        TaskError, match=r"mine.csv: is not an .npz file; .* task = 'hf:.*mine.csv'"
    ):
        load_raw(TaskSpec(task="npz", path=str(path)))


def test_npz_needs_a_path():
    with pytest.raises(TaskError, match="path = ''"):
        load_raw(TaskSpec(task="npz"))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_fashion(folder):
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(count, dtype=np.uint8) % 10)


def test_fashion_mnist_from_a_folder_and_from_debian(tmp_path, monkeypatch):
    write_fashion(tmp_path)
    raw = load_raw(TaskSpec(task="fashion-mnist", path=str(tmp_path)))
    assert raw.input_shape == (1, 28, 28)
    assert (len(raw.y_train), len(raw.y_test), raw.num_classes) == (20, 10, 10)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path)
    assert np.array_equal(load_raw(TaskSpec(task="fashion-mnist")).x_train, raw.x_train)


def test_fashion_mnist_damaged_or_incomplete(tmp_path):
    write_fashion(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:500])
    with pytest.raises(TaskError, match="train-images"):
        load_raw(TaskSpec(task="fashion-mnist", path=str(tmp_path)))
    images.unlink()
    with pytest.raises(TaskError, match="lacks train-images"):
        load_raw(TaskSpec(task="fashion-mnist", path=str(tmp_path)))


class Offline:
    def __getattr__(self, name):
        def refuse(*_args, **_kwargs):
            raise OSError("no network\nat all")

        return refuse


@pytest.mark.parametrize("task", ["fashion-mnist", "cifar10", "cifar100"])
def test_offline_says_what_to_do(tmp_path, monkeypatch, task):
    offline = types.SimpleNamespace(datasets=Offline())
    monkeypatch.setattr("forager.core.tasks.torchvision_compat.torchvision", lambda: offline)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")
    with pytest.raises(TaskError, match=r"no network at all.*set path to"):
        load_raw(TaskSpec(task=task, cache_dir=str(tmp_path)))


def test_cifar_is_downloaded_once(tmp_path, monkeypatch):
    asked = []

    def cifar(root, train, download):
        asked.append((root, train, download))
        images = np.zeros((20, 32, 32, 3), dtype=np.uint8)
        return types.SimpleNamespace(data=images, targets=[number % 10 for number in range(20)])

    module = types.SimpleNamespace(datasets=types.SimpleNamespace(CIFAR10=cifar))
    monkeypatch.setattr("forager.core.tasks.torchvision_compat.torchvision", lambda: module)
    for _ in range(2):
        raw = load_raw(TaskSpec(task="cifar10", cache_dir=str(tmp_path)))
        assert raw.input_shape == (3, 32, 32)
    assert asked == [(str(tmp_path), True, True), (str(tmp_path), False, True)]


def test_cifar_from_a_file_knows_its_classes(tmp_path):
    images = np.zeros((6, 32, 32, 3), dtype=np.uint8)
    path = save(tmp_path / "cifar.npz", x_train=images, x_test=images[:3])
    raw = load_raw(TaskSpec(task="cifar100", path=path))
    assert (raw.input_shape, raw.num_classes) == ((3, 32, 32), 100)


def write_posts(path):
    words = ["engine wheels road", "planet orbit rocket"]
    lines = [
        {"split": split, "y": group, "text": f"Subject: {group}\n\n{words[group]} {number}"}
        for split in ("train", "test")
        for number in range(5)
        for group in (0, 1)
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())


@pytest.mark.parametrize("name", ["posts.jsonl", "posts.jsonl.xz"])
def test_newsgroups_become_weights_of_words(tmp_path, name):
    write_posts(tmp_path / name)
    spec = TaskSpec(task="20news", path=str(tmp_path / name), cache_dir=str(tmp_path))
    raw = load_raw(spec)
    assert (raw.input_shape, raw.num_classes) == ((6,), 20)
    dense = everything(raw.x_train)
    assert dense.dtype == np.float32
    assert np.linalg.norm(dense, axis=1) == pytest.approx(1)
    assert np.array_equal(everything(load_raw(spec).x_train), dense)
    data = load_task(spec).client_data(0, 2)
    assert data.train.x.shape[1:] == (6,)


def test_newsgroups_by_name_are_numbered_alphabetically(tmp_path):
    names = ["rec", "alt", "talk", "comp", "soc", "misc", "sci", "news"]
    lines = [
        {"split": split, "y": name, "text": ""} for split in ("train", "test") for name in names
    ]
    path = tmp_path / "posts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    posts = newsgroups.read_posts(path)
    assert posts["train"][1] == posts["test"][1] == [sorted(names).index(name) for name in names]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"split": "train", "y": 1}',
        '{"split": "all", "y": 1, "text": ""}',
        "[]",
        '{"split": "train", "y": 1.5, "text": ""}',
    ],
)
def test_bad_line_of_posts_is_named(tmp_path, line):
    path = tmp_path / "posts.jsonl"
    path.write_text('{"split": "train", "y": 0, "text": "hello"}\n' + line)
    with pytest.raises(TaskError, match="line 2"):
        newsgroups.read_posts(path)


def test_posts_that_are_not_packed(tmp_path):
    (tmp_path / "posts.jsonl.xz").write_bytes(b"hello")
    with pytest.raises(TaskError, match=r"posts\.jsonl\.xz"):
        load_raw(TaskSpec(task="20news", path=str(tmp_path / "posts.jsonl.xz")))
    with pytest.raises(TaskError, match="path = "):
        load_raw(TaskSpec(task="20news", path=str(tmp_path / "none.jsonl")))


@pytest.fixture
def own_module(monkeypatch):
    module = types.ModuleType("a_users_module")
    monkeypatch.setitem(sys.modules, "a_users_module", module)
    return module


def test_own_data_as_raw_data_or_dict(own_module):
    x, y = np.zeros((4, 3)), np.array([0, 1, 0, 1])
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    own_module.raw = lambda: RawData(**arrays)
    own_module.mapping = lambda: arrays | {"num_classes": 7}
    assert load_task(TaskSpec(task="a_users_module:raw")).num_classes == 2
    assert load_task(TaskSpec(task="a_users_module:mapping")).num_classes == 7


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("no_such_module:data", "cannot be imported"),
        ("a_users_module.py:mapping", "use 'a_users_module:mapping'"),
        ("a_users_module:nothing", "cannot be imported"),
        ("a_users_module:number", "a function"),
        ("a_users_module:listing", "returned list"),
        ("a_users_module:partial", "y_test"),
        ("a_users_module:", "module:attribute"),
    ],
)
def test_own_data_that_does_not_work(own_module, task, expected):
    own_module.number = 3
    own_module.listing = list
    own_module.partial = lambda: {"x_train": 0, "y_train": 0, "x_test": 0, "labels": 0}
    with pytest.raises(TaskError, match=expected):
        _ = load_task(TaskSpec(task=task)).num_classes


def three():
    return {"a": np.arange(3)}


def test_damaged_cache_is_built_anew(tmp_path):
    (tmp_path / "thing.npz").write_bytes(b"PK broken")
    assert storage.cached_arrays(tmp_path, "thing", three)["a"].tolist() == [0, 1, 2]
    kept = storage.cached_arrays(tmp_path, "thing", lambda: pytest.fail("built again"))
    assert kept["a"].tolist() == [0, 1, 2]


def test_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").touch()
    arrays = storage.cached_arrays(tmp_path / "file" / "folder", "thing", three)
    assert arrays["a"].tolist() == [0, 1, 2]


def test_reader_of_the_old_file_is_not_disturbed(tmp_path):
    path = tmp_path / "thing.npz"
    storage.write_arrays(path, {"a": np.arange(3)})
    with open(path, "rb") as reader:
        storage.write_arrays(path, {"a": np.arange(4)})
        assert np.load(reader)["a"].tolist() == [0, 1, 2]
    assert np.load(path)["a"].tolist() == [0, 1, 2, 3]


def test_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "thing.npz"
    storage.write_arrays(path, {"a": np.arange(3)})
    before = path.read_bytes()

    def interrupted(file, **_arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        storage.write_arrays(path, {"a": np.arange(4)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_server_needs_its_test_data_only(tmp_path):
    path = save(tmp_path / "server.npz", x_train=None, y_train=None)
    task = load_task(TaskSpec(task="npz", path=path, validation_share=0.0))
    assert len(task.server_data().test) == 3
    assert task.build_model()(task.server_data().test.x).shape == (3, task.num_classes)
    with pytest.raises(TaskError, match="x_train holds no samples"):
        task.client_data(0, 2)
