"""Models that travel as changes: exact, and refused where they cannot be."""

from typing import Any

import numpy as np
import pytest
from forager.core.wire.changes import apply_change, encode_change, tag_of
from forager.core.wire.subsets import MalformedUpdate


def model(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "weight": rng.normal(size=(7, 5)).astype(np.float32),
        "count": np.array(3),
        "bias": rng.normal(size=5).astype(np.float32),
    }


def changed(before: dict[str, Any], share: float) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    return {
        name: np.where(rng.random(a.shape) < share, a * 1e-3 + 7, a).astype(a.dtype)
        if a.dtype.kind == "f"
        else a
        for name, a in before.items()
    }


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_both_sides_hold_the_same_model_and_know_the_difference(share: float) -> None:
    before = model(0)
    after = changed(before, share)
    data = encode_change(before, after)
    assert data is not None
    got, difference = apply_change(before, data)
    assert tag_of(got) == tag_of(after)
    assert list(got) == list(after)
    wanted = [(after[name] - before[name]).ravel() for name in ("weight", "bias")]
    np.testing.assert_array_equal(difference, np.concatenate(wanted))
    assert tag_of(before) == tag_of(model(0)), "what is held is not changed"
    assert sum(map(len, data)) <= 4 * np.count_nonzero(difference) + 60


def test_even_what_compares_equal_is_told_apart() -> None:
    before, after = {"w": np.float32([0.0, 1.0])}, {"w": np.float32([-0.0, 1.0])}
    got, _ = apply_change(before, encode_change(before, after))
    assert np.signbit(got["w"]).tolist() == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        {"weight": np.zeros((7, 5), np.float32)},
        model(1) | {"count": np.array(4)},
        model(1) | {"bias": np.zeros(6, np.float32)},
        model(1) | {"bias": np.zeros(5)},
        dict(reversed(model(1).items())),
    ],
)
def test_what_a_change_cannot_say_goes_whole(other: dict[str, Any]) -> None:
    assert encode_change(model(0), other) is None
    doubles = {"w": np.zeros(3)}
    assert encode_change(doubles, doubles) is None


def test_malformed_changes_are_refused() -> None:
    before = model(0)
    positions, values = encode_change(before, changed(before, 0.5)) or []
    for bad in (
        [positions, values[:-4]],
        [positions, values + b"\0"],
        [positions[:-1], values],
        [values, positions],
        [positions],
        positions,
        ["text", values],
    ):
        with pytest.raises(MalformedUpdate):
            apply_change(before, bad)
    with pytest.raises(MalformedUpdate):
        apply_change({"w": np.zeros(2, np.float32)}, [positions, values])
