"""Models that travel as changes: exact, and refused where they cannot be."""

from typing import Any

import numpy as np
import pytest
from forager.core.wire.arrays import flat_change
from forager.core.wire.changes import apply_change, encode_change, encode_shortest, tag_of
from forager.core.wire.envelope import MalformedUpdate


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
@pytest.mark.parametrize("encode", [encode_change, encode_shortest])
def test_both_sides_hold_the_same_model(encode: Any, share: float) -> None:
    before = model(0)
    after = changed(before, share)
    data = encode(before, after)
    got = apply_change(before, data)
    assert tag_of(got) == tag_of(after)
    assert list(got) == list(after)
    assert tag_of(before) == tag_of(model(0)), "what is held is not changed"
    assert sum(map(len, data)) <= 4 * np.count_nonzero(flat_change(before, after)) + 60


def test_even_what_compares_equal_is_told_apart() -> None:
    before, after = {"w": np.float32([0.0, 1.0])}, {"w": np.float32([-0.0, 1.0])}
    got = apply_change(before, encode_change(before, after))
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
def test_what_a_change_of_entries_cannot_say(other: dict[str, Any]) -> None:
    assert encode_change(model(0), other) is None
    doubles = {"w": np.zeros(3)}
    assert encode_change(doubles, doubles) is None
    alike = [(n, a.dtype, a.shape) for n, a in other.items()] == [
        (n, a.dtype, a.shape) for n, a in model(0).items()
    ]
    assert (encode_shortest(model(0), other) is not None) == alike


def few(before: dict[str, Any]) -> dict[str, Any]:
    weight = before["weight"].copy()
    weight.flat[::50] += 1
    return before | {"weight": weight}


def test_the_shorter_form_is_taken() -> None:
    rng = np.random.default_rng(3)
    before = {"weight": rng.normal(size=(80, 50)).astype(np.float32)}
    near = {"weight": before["weight"] * np.float32(1 + 1e-4)}
    entries, bits = encode_shortest(before, few(before)), encode_shortest(before, near)
    assert entries is not None
    assert bits is not None
    assert (len(entries), len(bits)) == (2, 1)
    assert len(bits[0]) < 0.6 * before["weight"].nbytes
    for after, change in ((few(before), entries), (near, bits)):
        assert tag_of(apply_change(before, change)) == tag_of(after)


def test_malformed_changes_are_refused() -> None:
    before = model(0)
    positions, values = encode_change(before, changed(before, 0.5)) or []
    for bad in (
        [positions, values[:-4]],
        [positions, values + b"\0"],
        [positions[:-1], values],
        [values, positions],
        [positions, values, b""],
        [positions],
        [],
        positions,
        ["text", values],
    ):
        with pytest.raises(MalformedUpdate):
            apply_change(before, bad)
    with pytest.raises(MalformedUpdate):
        apply_change({"w": np.zeros(2, np.float32)}, [positions, values])
