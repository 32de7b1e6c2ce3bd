import math
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from forager.core.wire import sparse, subsets
from forager.core.wire.sparse import MalformedUpdate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

HEADER_AND_CHECKSUM = 18
SIZE_AT, K_AT, BODY_AT = 6, 10, 14

UPDATES = hnp.arrays(
    np.float32,
    st.integers(0, 600),
    elements=st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-40, np.inf, -np.inf, np.nan]),
        st.floats(width=32),
    ),
)


def reference_top_k(update: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    magnitude = np.abs(update.astype(np.float64))
    rank = np.where(np.isnan(magnitude), 2.0, 0.0) + np.where(np.isinf(magnitude), 1.0, 0.0)
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    best_first = np.lexsort((np.arange(update.size), -finite, -rank))
    dense = np.zeros_like(update)
    dense[best_first[:k]] = update[best_first[:k]]
    return dense


def entropy_bound_bits(size: int, k: int) -> float:
    ways = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    return ways / math.log(2)


def random_support(size: int, k: int, seed: int = 0) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(seed).choice(size, k, replace=False))


def index_part_bytes(indices: NDArray[np.int64], size: int) -> int:
    return len(subsets.encode_subset(indices, size)) - HEADER_AND_CHECKSUM


def normal(size: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def resealed(message: bytes | bytearray) -> bytes:
    """Forge a valid checksum, so that the checks behind it are the ones that are tested."""
    return bytes(message[:-4]) + zlib.crc32(message[:-4]).to_bytes(4, "little")


def with_field(message: bytes, at: int, value: int) -> bytes:
    return resealed(message[:at] + value.to_bytes(4, "little") + message[at + 4 :])


def with_form(message: bytes, at: int, form: int) -> bytes:
    return resealed(message[:at] + bytes([form]) + message[at + 1 :])


# --- round trips ---------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, derandomize=True)
@given(update=UPDATES, data=st.data())
def test_decodes_to_the_entries_of_largest_magnitude(
    update: NDArray[Any], data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, update.size) | st.sampled_from([0, update.size]))
    decoded = sparse.decode(sparse.encode(update, k), size=update.size)
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(
        decoded.view(np.uint32), reference_top_k(update, k).view(np.uint32)
    )


@pytest.mark.parametrize("k", [0, 1, 100, 1_000, 5_000, 9_999, 10_000])
def test_agrees_with_a_plain_sort_on_a_large_update(k: int) -> None:
    update = normal(10_000)
    np.testing.assert_array_equal(
        sparse.decode(sparse.encode(update, k)), reference_top_k(update, k)
    )


def test_ties_go_to_the_lowest_index() -> None:
    update = np.array([1, -2, 2, 2, -2, 0], np.float32)
    np.testing.assert_array_equal(sparse.decode(sparse.encode(update, 3)), [0, -2, 2, 2, 0, 0])


def test_nan_outranks_infinity_and_is_not_hidden() -> None:
    update = np.array([np.inf, 5.0, -np.nan, -np.inf], np.float32)
    np.testing.assert_array_equal(sparse.decode(sparse.encode(update, 1)), [0, 0, np.nan, 0])


def test_nans_of_different_bits_tie() -> None:
    update = np.array([0xFFC00000, 0x7FFFFFFF], np.uint32).view(np.float32)
    _, indices, values = sparse.decode_pairs(sparse.encode(update, 1))
    np.testing.assert_array_equal(indices, [0])
    np.testing.assert_array_equal(values.view(np.uint32), [0xFFC00000])


def test_float16_rounds_values_and_keeps_places() -> None:
    update = normal(1_000)
    decoded = sparse.decode(sparse.encode(update, 100, values="float16"))
    expected = reference_top_k(update, 100).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(decoded, expected)
    assert len(sparse.encode(update, 100)) - len(sparse.encode(update, 100, "float16")) == 200


def test_pairs_add_onto_a_reference_in_place() -> None:
    update, reference = normal(1_000), normal(1_000, seed=1)
    expected = reference + reference_top_k(update, 50)
    size, indices, values = sparse.decode_pairs(sparse.encode(update, 50), size=1_000)
    reference[indices] += values
    assert size == 1_000
    np.testing.assert_array_equal(reference, expected)


def test_wider_and_strided_floats_are_cast_and_left_unchanged() -> None:
    update = np.random.default_rng(0).standard_normal(400)[::2]
    before = update.copy()
    np.testing.assert_array_equal(
        sparse.decode(sparse.encode(update, 20)), reference_top_k(update.astype(np.float32), 20)
    )
    np.testing.assert_array_equal(update, before)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(mask=hnp.arrays(bool, st.integers(0, 2_000)), run=st.integers(1, 40))
def test_index_sets_survive(mask: NDArray[np.bool_], run: int) -> None:
    mask = np.repeat(mask, run)
    indices = np.flatnonzero(mask)
    decoded = subsets.decode_subset(subsets.encode_subset(indices, mask.size), mask.size)
    np.testing.assert_array_equal(decoded, indices)


@pytest.mark.parametrize("indices", [[0], [subsets.MAX_SIZE - 1], [0, subsets.MAX_SIZE - 1]])
def test_the_farthest_indices_survive(indices: list[Any]) -> None:
    data = subsets.encode_subset(np.array(indices), subsets.MAX_SIZE)
    np.testing.assert_array_equal(subsets.decode_subset(data, subsets.MAX_SIZE), indices)


# --- size ----------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.3, 0.4, 0.5, 0.7, 0.9])
def test_random_supports_come_close_to_the_entropy_bound(density: float) -> None:
    size = 200_000
    k = int(size * density)
    bits = 8 * index_part_bytes(random_support(size, k), size)
    assert bits <= (1.15 if k < 1_000 else 1.06) * entropy_bound_bits(size, k)


def test_a_whole_message_at_ten_percent_is_within_the_bound() -> None:
    size, k = 200_000, 20_000
    overhead = 8 * (len(sparse.encode(normal(size), k)) - 4 * k)
    assert overhead <= 1.15 * entropy_bound_bits(size, k)


@pytest.mark.parametrize("k", [0, 200_000])
def test_all_or_nothing_needs_no_index_bits(k: int) -> None:
    assert index_part_bytes(np.arange(k), 200_000) == 5


def test_layers_of_different_density_cost_less_than_a_uniform_support() -> None:
    dense, thin = random_support(20_000, 10_000), 20_000 + random_support(180_000, 1_800)
    bits = 8 * index_part_bytes(np.concatenate((dense, thin)), 200_000)
    assert bits < 1.06 * (entropy_bound_bits(20_000, 10_000) + entropy_bound_bits(180_000, 1_800))
    assert bits < 0.6 * entropy_bound_bits(200_000, 11_800)


def test_runs_of_indices_cost_far_less_than_scattered_ones() -> None:
    rows = random_support(3_000, 300)
    indices = (rows[:, None] * 64 + np.arange(64)).ravel()
    assert 8 * index_part_bytes(indices, 192_000) < 0.1 * entropy_bound_bits(192_000, indices.size)


# --- bad arguments -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "k", "values", "words"),
    [
        (np.zeros((2, 2), np.float32), 1, "float32", r"1-D float array.*\(2, 2\)"),
        (np.zeros(3, np.int64), 1, "float32", "float array, got int64"),
        (np.zeros(3, np.float32), 4, "float32", r"k must be in 0\.\.3.*got 4"),
        (np.zeros(3, np.float32), -1, "float32", r"k must be in 0\.\.3.*got -1"),
        (np.zeros(3, np.float32), 0.5, "float32", "k must be an integer, got 0.5"),
        (np.zeros(3, np.float32), 1, "int8", "values must be one of.*float16.*got 'int8'"),
        (np.array([1e5], np.float32), 1, "float16", "does not fit float16: training diverges"),
        (np.array([1e300], np.float64), 1, "float32", "1e.300 .*does not fit float32"),
    ],
)
def test_encode_refuses(update: NDArray[Any], k: Any, values: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sparse.encode(update, k, values)


@pytest.mark.parametrize(
    ("indices", "size", "words"),
    [
        ([1, 1], 5, "strictly increasing"),
        ([2, 1], 5, "strictly increasing"),
        ([0, 5], 5, r"in 0\.\.4, got 0\.\.5"),
        ([-1, 2], 5, r"in 0\.\.4, got -1\.\.2"),
        ([0.5], 5, "1-D integers, got float64"),
        ([[1]], 5, r"1-D integers, got int64 of \(1, 1\)"),
        ([], 2**31, r"size must be in 0\.\.2147483647, got 2147483648"),
    ],
)
def test_encode_subset_refuses(indices: list[Any], size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subsets.encode_subset(np.array(indices), size)


# --- malformed messages --------------------------------------------------------------------

MESSAGE = sparse.encode(normal(1_000), 100)
INDEX_PART_AT = BODY_AT + 4 * 100
LAST_OF_10_000 = sparse.encode(np.arange(10_000, dtype=np.float32), 1)
ONE_RUN_TO_THE_END = sparse.encode(np.arange(100, dtype=np.float32), 50)
# Members 0 and 2 of 3 (coded by one position, the absent 1), read as the edges of runs.
ODD_EDGES = with_form(sparse.encode(np.array([1, 0, 1], np.float32), 2), at=BODY_AT + 4 * 2, form=2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"PK\x03\x04" + MESSAGE[4:], "starts with b'PK"),
        (resealed(MESSAGE[:4] + b"\x09" + MESSAGE[5:]), "version 9 is not known"),
        (resealed(MESSAGE[:5] + b"\x07" + MESSAGE[6:]), "content 7 is not a sparse update"),
        (MESSAGE[:-1], "checksum does not match"),
        (MESSAGE + b"\0", "checksum does not match"),
        (with_field(MESSAGE, SIZE_AT, 2**32 - 1), "must hold k <= size"),
        (with_field(MESSAGE, SIZE_AT, 99), "must hold k <= size"),
        (with_field(MESSAGE, SIZE_AT, 2**31 - 1), "pass the expected size"),
        (with_field(MESSAGE, SIZE_AT, 200), "is not below 200|is larger than 200"),
        (with_field(MESSAGE, K_AT, 2**32 - 1), "must hold k <= size"),
        (with_field(MESSAGE, K_AT, 1_000), "cannot hold 1000 "),
        (with_field(MESSAGE, K_AT, 99), "form|missing"),
        (resealed(MESSAGE[:-4] + bytes(5)), "followed by other bytes"),
        (resealed(MESSAGE[:-8] + bytes(4)), "cut short"),
        (resealed(MESSAGE[:INDEX_PART_AT] + bytes(4)), "index part is missing"),
        (with_field(MESSAGE, INDEX_PART_AT + 1, 2**32 - 1), "form 0 of 4294967295 positions"),
        (with_form(MESSAGE, INDEX_PART_AT, 3), "form 3"),
        (with_form(MESSAGE, INDEX_PART_AT, 2), "runs hold"),
        (
            resealed(MESSAGE[: INDEX_PART_AT + 5] + b"\xff" + MESSAGE[INDEX_PART_AT + 6 :]),
            "code width 255",
        ),
        (with_field(LAST_OF_10_000, SIZE_AT, 10), "gap between positions is larger than 10"),
        (with_field(ONE_RUN_TO_THE_END, SIZE_AT, 95), "position 100 is not below 96"),
        (with_field(ONE_RUN_TO_THE_END, BODY_AT + 4 * 50 + 1, 1), "cut short"),
        (ODD_EDGES, "a start but no end"),
        (subsets.encode_subset(np.arange(3), 10), "content 0 is not a sparse update"),
    ],
    ids=lambda value: "message" if isinstance(value, bytes) else value,
)
def test_decode_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(MalformedUpdate, match=words):
        sparse.decode(data)


def test_a_message_for_another_size_is_refused() -> None:
    with pytest.raises(MalformedUpdate, match="for size 1000, expected 999"):
        sparse.decode(MESSAGE, size=999)
    with pytest.raises(MalformedUpdate, match="for size 1000, expected 1001"):
        sparse.decode_pairs(MESSAGE, size=1_001)
    with pytest.raises(MalformedUpdate, match="for size 10, expected 11"):
        subsets.decode_subset(subsets.encode_subset(np.arange(3), 10), 11)


def test_an_update_is_not_an_index_set() -> None:
    with pytest.raises(MalformedUpdate, match="bare index set"):
        subsets.decode_subset(MESSAGE, 1_000)


def test_every_flipped_bit_is_noticed() -> None:
    message = sparse.encode(normal(60), 6)
    for bit in range(8 * len(message)):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedUpdate):
            sparse.decode(bytes(flipped))


def judged(decode: Callable[..., object], *arguments: object) -> None:
    """Decode; a refusal by the one error type is as good as a result, any other error is not."""
    with suppress(MalformedUpdate):
        decode(*arguments)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(noise=st.binary(max_size=200), form=st.integers(0, 4), k=st.integers(0, 2**32 - 1))
def test_random_bytes_never_raise_anything_else(noise: bytes, form: int, k: int) -> None:
    judged(sparse.decode, noise)
    for content in range(4):
        header = b"FRGR\x01" + bytes([content]) + (300).to_bytes(4, "little")
        for count in (k, k % 50):
            body = count.to_bytes(4, "little") + bytes(4 * count % 400) + bytes([form])
            for data in (header + noise, header + body + noise):
                judged(sparse.decode, resealed(data + bytes(4)), 300)
                judged(subsets.decode_subset, resealed(data + bytes(4)), 300)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(data=st.data(), size=st.integers(1, 700), clustered=st.booleans(), seed=st.integers(0, 9))
def test_forged_messages_yield_a_valid_set_or_a_refusal(
    data: st.DataObject, size: int, clustered: bool, seed: int
) -> None:
    update = np.repeat(normal(size, seed), 8)[:size] if clustered else normal(size, seed)
    message = bytearray(sparse.encode(update, data.draw(st.integers(0, size))))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(4, len(message) - 1))] = data.draw(st.integers(0, 255))
    forged = resealed(message[: data.draw(st.integers(4, len(message)) | st.just(len(message)))])
    judged(sparse.decode, forged, size)
    try:
        claimed, indices, values = sparse.decode_pairs(forged)
    except MalformedUpdate:
        return
    assert indices.shape == values.shape
    assert np.all(np.diff(indices) > 0)
    assert indices.size == 0 or (indices[0] >= 0 and indices[-1] < claimed)


def test_lies_about_size_cost_no_memory() -> None:
    full = sparse.encode(np.ones(4, np.float32), 4)
    lies = [
        with_field(MESSAGE, SIZE_AT, 2**31 - 1),
        with_field(full, SIZE_AT, 2**31 - 1),
        with_field(with_field(full, SIZE_AT, 2**31 - 1), K_AT, 2**31 - 1),
        with_field(with_field(full, SIZE_AT, 2**28), K_AT, 2**28),
        with_field(MESSAGE, INDEX_PART_AT + 1, 2**31),
    ]
    tracemalloc.start()
    try:
        for lie in lies:
            with pytest.raises(MalformedUpdate):
                sparse.decode(lie)
            with pytest.raises(MalformedUpdate):
                sparse.decode(lie, size=1_000_000)
            judged(sparse.decode_pairs, lie)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("values", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["normal", "ties", "runs", "zeros", "broken"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.6, 1.0])
def test_rows_are_encoded_as_one_by_one(kind: str, share: float, values: str) -> None:
    """By members, by what is absent, by the edges of runs; ties go to the lowest index."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 700)).astype(np.float32)
    if kind == "ties":
        rows = np.round(rows)
    elif kind == "runs":
        rows = np.cumsum(rng.random(rows.shape) < 0.01, axis=1).astype(np.float32)
        rows[2] = rng.normal(size=700)
    elif kind == "zeros":
        rows[:, 30:] = 0
    elif kind == "broken":
        rows[1, 5], rows[3, 6] = np.nan, -np.inf
    messages = sparse.encode_rows(rows, round(share * 700), values)
    assert messages == [sparse.encode(row, round(share * 700), values) for row in rows]
    expected = [sparse.decode(message) for message in messages]
    np.testing.assert_array_equal(sparse.decode_rows(messages, 700), np.stack(expected))


def test_bytes_do_not_change() -> None:
    """Devices of another version must be able to read them."""
    rows = np.random.default_rng(0).normal(size=(20, 1500)).astype(np.float32)
    rows[:5] = np.cumsum(rows[:5] > 2, axis=1)
    every = [*sparse.encode_rows(rows, 70), *sparse.encode_rows(rows, 1400, "float16")]
    assert zlib.crc32(b"".join(every)) == 3319859316


def test_messages_of_other_lengths_and_contents_are_decoded_together() -> None:
    rows = np.random.default_rng(0).normal(size=(6, 700)).astype(np.float32)
    messages = [
        sparse.encode(row, k, values)
        for row, k in zip(rows[::2], [5, 600, 700], strict=True)
        for values in ("float32", "float16")
    ]
    expected = np.stack([sparse.decode(message) for message in messages])
    np.testing.assert_array_equal(sparse.decode_rows(messages, 700), expected)
    assert sparse.decode_rows([], 700).shape == (0, 700)


def test_a_long_message_does_not_make_all_others_as_long() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 700)).astype(np.float32)
    messages = sparse.encode_rows(rows, 70)
    body = messages[0][:-4] + bytes(2_000_000)
    messages[0] = body + zlib.crc32(body).to_bytes(4, "little")
    tracemalloc.start()
    with pytest.raises(MalformedUpdate, match="bytes cannot code"):
        sparse.decode_rows(messages, 700)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
