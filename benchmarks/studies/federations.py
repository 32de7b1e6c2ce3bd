"""Real federations: natural clients, with splits that others published. Cited, not redistributed.

Files are looked for in the folder ``FORAGER_DATA``: ``fed_heart_disease/`` (Janosi et al., 1988;
the preparation and split of FLamby, Ogier du Terrail et al., 2022), ``beijing_air/`` (Chen, 2019),
``shakespeare/``, ``speech_commands_users/`` (counts of words by speaker; Warden, 2018) and
``devices/`` (FedScale's trace, Lai et al., 2022).
"""

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from ...core.tasks import TaskSpec
from ...core.tasks.datasets import load_raw, rows
from ...core.tasks.datasets.poems import LENGTH, encoded
from ...tools.engine.simulated_transport import DeviceSpeeds
from .sources import Arrays, source

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = 300
_LEFT_OUT = (10, 11, 12)  # slope, ca, thal: mostly missing
_KINDS = {2: (2, 3, 4), 6: (1, 2)}  # chest pain and ECG as indicators, without the first value
_AHEAD = 6  # hours


def heart(*, pooled: bool) -> Arrays:
    """Return the patients of four hospitals, split and scaled as FLamby does.

    Each hospital scales by its own training patients. With ``pooled`` the test data are scaled by
    all training patients instead, as FLamby's "pooled test" is; hospitals have none of their own.
    """
    from sklearn.model_selection import train_test_split  # takes over a second to import

    parts: dict[str, list[NDArray[Any]]] = {}
    for number, name in enumerate(HOSPITALS):
        x, y = _patients(source(f"fed_heart_disease/processed.{name}.data"))
        shares = y if np.bincount(y).min() > 2 else None  # Switzerland has one healthy patient
        train, test = train_test_split(
            np.arange(len(y)), test_size=1 - 0.66, train_size=0.66, random_state=43, stratify=shares
        )
        train, test = np.sort(train), np.sort(test)
        mean, spread = x[train].mean(axis=0), x[train].std(axis=0, ddof=1) + 1e-9
        for part, some in (("train", train), ("test", test)):
            parts.setdefault(f"raw_{part}", []).append(x[some])
            parts.setdefault(f"x_{part}", []).append((x[some] - mean) / spread)
            parts.setdefault(f"y_{part}", []).append(y[some])
            parts.setdefault(f"user_{part}", []).append(np.full(len(some), number))
    whole = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    if pooled:
        everyone = whole["raw_train"]
        mean, spread = everyone.mean(axis=0), everyone.std(axis=0, ddof=1) + 1e-9
        whole["x_test"] = (whole["raw_test"] - mean) / spread
        del whole["user_test"]
    kept = {k: v for k, v in whole.items() if not k.startswith("raw_")}
    return {k: v.astype(np.float32) if k.startswith("x_") else v for k, v in kept.items()}


def _patients(path: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    lines = [line.split(",") for line in Path(path).read_text().split()]
    table = np.array([[np.nan if v in ("?", "NaN") else float(v) for v in line] for line in lines])
    table = np.delete(table, _LEFT_OUT, axis=1)
    table = table[~np.isnan(table).any(axis=1)]
    plain = [table[:, c] for c in range(10) if c not in _KINDS]
    kinds = [(table[:, c] == value) for c, values in _KINDS.items() for value in values]
    x = np.stack([*plain, *kinds], axis=1).astype(np.float64)
    return x, (table[:, -1] > 0).astype(np.int64)


def air() -> Arrays:
    """Return hourly air of 12 stations: fine dust in six hours, from what is measured now.

    One in six hours is kept. The first 70 % of the time are for training, the rest for tests.
    """
    with np.load(source("beijing_air/beijing_air.npz")) as file:
        x, station, hour = (file[name] for name in ("x", "station", "hour"))
    last = int(0.7 * hour.max())
    parts: dict[str, list[NDArray[Any]]] = {}
    for number in np.unique(station):
        own, when = _filled(x[station == number]), hour[station == number].astype(np.int64)
        day = 2 * np.pi * (when % 24) / 24
        known = (np.log1p(np.maximum(own, 0)), own[:, 6:9], np.sin(day), np.cos(day))
        inputs = np.column_stack(known)
        target = np.log1p(own[_AHEAD:, 0])
        inputs, when = inputs[:-_AHEAD:6], when[:-_AHEAD:6]
        target = target[::6]
        for part, some in (("train", when < last), ("test", when >= last)):
            parts.setdefault(f"x_{part}", []).append(inputs[some])
            parts.setdefault(f"y_{part}", []).append(target[some])
            parts.setdefault(f"user_{part}", []).append(np.full(some.sum(), number))
    whole = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    mean, spread = whole["x_train"].mean(axis=0), whole["x_train"].std(axis=0)
    level, width = whole["y_train"].mean(), whole["y_train"].std()
    for part in ("train", "test"):
        whole[f"x_{part}"] = ((whole[f"x_{part}"] - mean) / spread).astype(np.float32)
        whole[f"y_{part}"] = ((whole[f"y_{part}"] - level) / width).astype(np.float32)
    return whole


def _filled(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return columns in which the last known value stands where none was measured."""
    known = np.where(np.isnan(x), 0, np.arange(len(x))[:, None])
    filled = np.take_along_axis(x, np.maximum.accumulate(known, axis=0), axis=0)
    return np.nan_to_num(filled.astype(np.float64))


def shakespeare() -> Arrays:
    """Return windows of what 142 speakers say; the last fifth of each speaker's text is tested."""
    with lzma.open(source("shakespeare/speakers.jsonl.xz"), "rt") as file:
        texts = [json.loads(line)["text"][:3000] for line in file]
    parts: dict[str, list[NDArray[Any]]] = {}
    for number, text in enumerate(texts):
        tokens, step = encoded(text), LENGTH
        cut = int(0.8 * len(tokens))
        for part, some in (("train", tokens[:cut]), ("test", tokens[cut:])):
            windows = np.lib.stride_tricks.sliding_window_view(some, LENGTH + 1)[::step]
            parts.setdefault(f"x_{part}", []).append(windows[:, :-1])
            parts.setdefault(f"y_{part}", []).append(windows[:, 1:])
            parts.setdefault(f"user_{part}", []).append(np.full(len(windows), number))
    return {name: np.concatenate(pieces) for name, pieces in parts.items()}


def spoken() -> Arrays:
    """Return Fashion-MNIST, spread as 300 speakers said the ten digits in Speech Commands.

    A speaker who said "three" four times holds four images of class 3.
    """
    with np.load(source("speech_commands_users/counts.npz")) as file:
        words = file["words"].tolist()
        counts = file["counts"][:, [words.index(word) for word in DIGITS]].astype(np.int64)
    rng = np.random.default_rng(0)
    counts = counts[rng.permutation(np.flatnonzero(counts.sum(axis=1) >= 5))[:SPEAKERS]]
    raw = load_raw(TaskSpec(task="fashion-mnist"))
    labels = np.asarray(raw.y_train)
    held, users = [], []
    for label in range(len(DIGITS)):
        pool = rng.permutation(np.flatnonzero(labels == label))[: counts[:, label].sum()]
        held.append(pool)
        users.append(np.repeat(np.arange(len(counts)), counts[:, label]))
    mine = np.concatenate(held)
    tested = rng.permutation(len(raw.y_test))[:2000]
    return {
        **{"x_train": rows(raw.x_train, mine), "y_train": labels[mine]},
        "user_train": np.concatenate(users),
        **{"x_test": rows(raw.x_test, tested), "y_test": np.asarray(raw.y_test)[tested]},
    }


@contextmanager
def all_are_tested() -> Iterator[None]:
    """Let clients and the server test all test samples, in place of one half each."""

    def everything(owners: NDArray[Any], _: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.arange(len(owners)), np.arange(len(owners))

    with patch("forager.core.tasks.pool.share_between_owner_and_server", everything):
        yield


@contextmanager
def real_devices() -> Iterator[None]:
    """Give clients the speeds and connections of real devices, drawn by the run's seed."""
    with np.load(source("devices/fedscale_devices.npz")) as file:
        speed, bandwidth = file["computation"], file["communication_kbps"]

    def drawn(clients: int, seed: int = 0, *_: float) -> DeviceSpeeds:
        who = np.random.default_rng(seed).permutation(len(speed))[:clients]
        return DeviceSpeeds(1 / speed[who], bandwidth[who] * 1000 / 8)

    with patch.object(DeviceSpeeds, "drawn", staticmethod(drawn)):
        yield
