"""Poems of ten poets, one poet per client: predict the next character."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..spec import TaskSpec
from .raw import RawData

LENGTH = 40  # characters of a sample
STEP = 10  # characters between the beginnings of two samples
TEST_SHARE = 0.2  # the end of each poet's text
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz'"


def load(spec: TaskSpec) -> RawData:
    """Windows of 40 characters as token ids; the target is the window one character on."""
    train, test, owners, test_owners = [], [], [], []
    for number, text in enumerate(_texts().values()):
        tokens = encoded(text)
        cut = int(len(tokens) * (1 - TEST_SHARE))
        mine, held = _windows(tokens[:cut]), _windows(tokens[cut:])
        train.append(mine)
        test.append(held)
        owners.append(np.full(len(mine), number))
        test_owners.append(np.full(len(held), number))
    samples, held_out = np.concatenate(train), np.concatenate(test)
    return RawData(
        samples[:, :-1],
        samples[:, 1:],
        held_out[:, :-1],
        held_out[:, 1:],
        user_train=np.concatenate(owners),
        user_test=np.concatenate(test_owners),
        num_classes=len(ALPHABET),
        problem="next-token",
    )


def encoded(text: str) -> NDArray[np.int64]:
    """Return the place of each character in the alphabet; others become spaces."""
    places = {character: place for place, character in enumerate(ALPHABET)}
    return np.array([places.get(c, places[" "]) for c in text.lower()], dtype=np.int64)


def _windows(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return overlapping windows, one longer than a sample: the target is moved on by one."""
    views = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)
    return np.ascontiguousarray(views[::STEP])


def _texts() -> dict[str, str]:
    """Return what each poet wrote, by name."""
    # Markdown, since Flower packs files of few kinds with an app
    text = Path(__file__).with_name("poems.md").read_text(encoding="utf-8")
    parts = re.split(r"^# (.+)$", text, flags=re.MULTILINE)[1:]
    return {name: poem.strip() + "\n" for name, poem in zip(parts[::2], parts[1::2], strict=True)}
