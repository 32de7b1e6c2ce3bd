"""The data sets of the studies, each prepared once as an ``.npz`` file.

Files that cannot be downloaded by a package are looked for in the folder ``FORAGER_DATA``:
``cifar10.npz``, ``femnist.npz``, ``ucihar.npz``, ``wisdm51.npz``, ``traffic.npz`` and
``20news.jsonl.xz`` (what is in them: `SOURCES`), and the files of `federations`. Records name a
data set, never a path.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...core.storage.files import replacing
from ...core.tasks import TaskSpec
from ...core.tasks.datasets import blobs, load_raw, rows
from ...tools.experiments.records import SweepError
from ..data_part import write_part
from ..features import features_file
from . import federations
from .sources import Arrays, source

SOURCES = {
    "fashion": "Fashion-MNIST: 6,000 training and 2,000 test images, all classes alike",
    "cifar-features": "CIFAR-10: EfficientNet-Lite0's features of 6,000 and 1,500 images",
    "cifar": "CIFAR-10: 10,000 training and 2,500 test images, all classes alike",
    "femnist": "FEMNIST: 105 writers, 62 classes, 14,708 and 1,685 images, paper black",
    "har": "UCI HAR: 30 users, 6 activities, 8,239 and 2,060 windows of 9 channels, standardised",
    "wisdm": "WISDM 2019: 51 users, 6 activities, 5,890 and 1,550 windows, standardised",
    "traffic": "NSL-KDD: 10 classes of traffic, at most 500 training samples of each",
    "news": "20 Newsgroups by date: TF-IDF of 5,000 words, 4,000 and 2,000 posts",
    "heart": "UCI heart disease: 740 patients of 4 hospitals, FLamby's split",
    "heart-pooled": "the same, test data scaled by all hospitals together",
    "air": "Beijing: 12 stations, fine dust in six hours, the last 30 % of four years for tests",
    "shakespeare": "Shakespeare: next character, 142 speakers",
    "spoken": "Fashion-MNIST, spread as 300 speakers said ten words in Speech Commands",
    "digits": "digits, as the task has them",
    "digits-by-label": "digits of 100 users in the order of their labels, one or two labels each",
}
_PER_CLASS = 500
_USERS = 100


def prepared(name: str, cache: Path) -> Path:
    """Return the file of a data set; it is made if it is not there yet."""
    if name not in SOURCES:
        raise SweepError(f"data set {name!r} is not known; there are {list(SOURCES)}")
    target = cache / f"{name}.npz"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        arrays = _MAKERS[name](cache)
        with replacing(target) as file:
            np.savez(file, allow_pickle=False, **arrays)
    return target


def _part(task: str, data: str, train: int, test: int) -> Callable[[Path], Arrays]:
    def make(cache: Path) -> Arrays:
        with np.load(write_part(task, data and source(data), train, cache)) as file:
            arrays = dict(file)
        # A fixed order, so that a cut takes all classes alike
        order = np.random.default_rng(0).permutation(len(arrays["y_test"]))[:test]
        return {**arrays, "x_test": arrays["x_test"][order], "y_test": arrays["y_test"][order]}

    return make


def _whole(data: str) -> Callable[[Path], Arrays]:
    def make(cache: Path) -> Arrays:
        with np.load(source(data)) as file:
            return dict(file)

    return make


def _dark_paper(cache: Path) -> Arrays:
    """Return FEMNIST with paper 0 and ink 255, as in the other data sets of images."""
    arrays = _whole("femnist.npz")(cache)
    return {k: 255 - a if k.startswith("x_") else a for k, a in arrays.items()}


def _standardised(data: str) -> Callable[[Path], Arrays]:
    """Return a maker of windows whose channels have mean 0 and spread 1 over the training data."""

    def make(cache: Path) -> Arrays:
        arrays = _whole(data)(cache)
        train = arrays["x_train"].astype(np.float32)
        mean, spread = (f(train, axis=(0, 2), keepdims=True) for f in (np.mean, np.std))
        for part in ("x_train", "x_test"):
            arrays[part] = ((arrays[part].astype(np.float32) - mean) / spread).astype(np.float32)
        return arrays

    return make


def _capped_traffic(cache: Path) -> Arrays:
    arrays = _whole("traffic.npz")(cache)
    labels, order = arrays["y_train"], np.random.default_rng(0).permutation(len(arrays["y_train"]))
    kept = np.concatenate([order[labels[order] == c][:_PER_CLASS] for c in np.unique(labels)])
    return {**arrays, "x_train": arrays["x_train"][kept], "y_train": labels[kept]}


def _cifar_features(cache: Path) -> Arrays:
    images = _part("npz", "cifar10.npz", 6000, 1500)(cache)
    part = cache / "cifar-features-images.npz"
    with replacing(part) as file:
        np.savez(file, allow_pickle=False, **images)
    done = features_file(
        TaskSpec(task="npz", path=str(part)), "efficientnet-lite0", cache / "lite0.npz"
    )
    with np.load(done) as file:
        return dict(file)


def _news(cache: Path) -> Arrays:
    raw = load_raw(TaskSpec(task="20news", path=source("20news.jsonl.xz"), cache_dir=str(cache)))
    arrays: Arrays = {}
    for part, x, y, count in (
        ("train", raw.x_train, raw.y_train, 4000),
        ("test", raw.x_test, raw.y_test, 2000),
    ):
        chosen = np.random.default_rng(0).permutation(len(y))[:count]
        arrays |= {f"x_{part}": rows(x, chosen), f"y_{part}": np.asarray(y)[chosen]}
    return arrays


def _digits(_cache: Path) -> Arrays:
    raw = load_raw(TaskSpec(task="digits"))
    parts = {"x_train": raw.x_train, "y_train": raw.y_train, "x_test": raw.x_test}
    return {name: np.asarray(part) for name, part in {**parts, "y_test": raw.y_test}.items()}


def paired_file(path: Path, share: float, seed: int) -> Path:
    """Return the data with a share of the training labels one class too high, cyclically."""
    target = path.with_name(f"{path.stem}-pairs-{share:g}-{seed}.npz")
    if not target.exists():
        with np.load(path) as file:
            arrays = dict(file)
        labels = np.asarray(arrays["y_train"])
        wrong = np.random.default_rng(seed).random(len(labels)) < share
        arrays["y_train"] = np.where(wrong, (labels + 1) % (labels.max() + 1), labels)
        with replacing(target) as out:
            np.savez(out, allow_pickle=False, **arrays)
    return target


def _digits_by_label(_cache: Path) -> Arrays:
    """Return digits sorted by label and cut into equal parts: neighbours have the same label."""
    raw = load_raw(TaskSpec(task="digits"))
    labels = np.asarray(raw.y_train)
    order = np.argsort(labels, kind="stable")
    return {
        "x_train": rows(raw.x_train, order),
        "y_train": labels[order],
        "user_train": np.arange(len(order)) * _USERS // len(order),
        "x_test": np.asarray(raw.x_test),
        "y_test": np.asarray(raw.y_test),
    }


def blobs_file(spread: float, seed: int, cache: Path) -> Path:
    """Return ten blobs of one standard deviation, drawn with a seed; made if not there yet.

    The motivating experiment of GCFL with equal blobs; those of the task ``blobs`` are unequal.
    """
    from sklearn.datasets import make_blobs  # takes over a second to import

    target = cache / f"blobs-{spread:g}-{seed}.npz"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        x, y = make_blobs(
            n_samples=blobs.SAMPLES,
            n_features=blobs.DIMENSIONS,
            centers=blobs.BLOBS,
            cluster_std=spread,
            random_state=seed,
        )
        tested = int(len(y) * blobs.TEST_POOL_SHARE)  # points are in random order already
        x = x.astype(np.float32)
        with replacing(target) as file:
            np.savez(
                file,
                allow_pickle=False,
                **{"x_test": x[:tested], "y_test": y[:tested]},
                **{"x_train": x[tested:], "y_train": y[tested:]},
            )
    return target


_MAKERS: dict[str, Callable[[Path], Arrays]] = {
    "fashion": _part("fashion-mnist", "", 6000, 2000),
    "cifar-features": _cifar_features,
    "cifar": _part("npz", "cifar10.npz", 10_000, 2500),
    "femnist": _dark_paper,
    "har": _standardised("ucihar.npz"),
    "wisdm": _standardised("wisdm51.npz"),
    "traffic": _capped_traffic,
    "news": _news,
    "heart": lambda _: federations.heart(pooled=False),
    "heart-pooled": lambda _: federations.heart(pooled=True),
    "air": lambda _: federations.air(),
    "shakespeare": lambda _: federations.shakespeare(),
    "spoken": lambda _: federations.spoken(),
    "digits": _digits,
    "digits-by-label": _digits_by_label,
}
