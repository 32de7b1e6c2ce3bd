import math
import tracemalloc
import zlib

import numpy as np
import pytest
from forager.core.wire.subsets import MAX_SIZE
from forager.core.wire.supports import (
    MalformedSupport,
    OtherModel,
    decode_signed_support,
    decode_support,
    decode_supports,
    encode_signed_support,
    encode_support,
    encode_supports,
    model_tag,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

TAG = 0xC0FFEE
BODY_AT = 17


def random_support(size: int, k: int, seed: int = 0) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(seed).choice(size, k, replace=False))


def entropy_bytes(size: int, k: int) -> float:
    ways = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    return ways / math.log(2) / 8


def sealed(message: bytes) -> bytes:
    """Forge a valid checksum, so that the checks behind it are the ones that are tested."""
    return message + zlib.crc32(message).to_bytes(4, "little")


def forged(body: bytes, k: int, size: int = 1000, magic: bytes = b"FRGS") -> bytes:
    numbers = [each.to_bytes(4, "little") for each in (TAG, size, k)]
    return sealed(magic + bytes([2]) + b"".join(numbers) + body)


def index_part(indices: list[int], size: int = 1000) -> bytes:
    return encode_support(np.array(indices), size, TAG)[BODY_AT:-4]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(mask=hnp.arrays(bool, st.integers(1, 2_000)), run=st.integers(1, 60))
def test_supports_survive(mask: NDArray[np.bool_], run: int) -> None:
    mask[-1] = True
    mask = np.repeat(mask, run)
    support = np.flatnonzero(mask)
    data = encode_support(support, mask.size, TAG)
    np.testing.assert_array_equal(decode_support(data, mask.size, TAG), support)


@pytest.mark.parametrize(
    ("size", "k", "most"),
    [(1000, 500, 156), (10**9, 1, 31), (1000, 3, 31), (100_000, 7000, 4700), (100_000, 99_999, 31)],
)
def test_few_and_many_indices_take_few_bytes(size: int, k: int, most: int) -> None:
    support = np.arange(k) * (size // k) if size > 10**6 else random_support(size, k)
    data = encode_support(support, size, TAG)
    assert len(data) <= most
    np.testing.assert_array_equal(decode_support(data, size, TAG), support)


@pytest.mark.parametrize("share", [0.01, 0.07, 0.122, 0.2, 0.5])
def test_bytes_are_within_a_tenth_of_the_entropy_bound(share: float) -> None:
    size = 300_000
    k = int(share * size)
    data = encode_support(random_support(size, k), size, TAG)
    assert entropy_bytes(size, k) < len(data) < 1.1 * entropy_bytes(size, k)


def test_gaps_of_any_length_survive() -> None:
    support = np.cumsum([0, 1, 128, 129, 2**14, 2**14 + 1, 2**21 + 1, 2**28 + 1, 2**30])
    for size in (int(support[-1]) + 1, MAX_SIZE):
        data = encode_support(support, size, TAG)
        np.testing.assert_array_equal(decode_support(data, size, TAG), support)


@pytest.mark.parametrize(
    ("indices", "size", "message"),
    [
        ([], 5, "0 indices"),
        ([0.5], 5, "integers"),
        ([5], 5, r"0\.\.4, got 5"),
        ([-1, 2], 5, r"0\.\.4, got -1"),
        ([2, 2], 5, "increasing"),
        ([3, 1], 5, "increasing"),
        ([0], 0, "got 0"),
        ([0], MAX_SIZE + 1, "size"),
    ],
)
def test_what_is_no_support_is_refused(indices: list[float], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_support(np.array(indices), size, TAG)


def test_a_tag_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="tag"):
        encode_support(np.array([1]), 5, 2**32)


def test_support_of_another_model_is_refused_by_name() -> None:
    data = encode_support(np.array([1, 2]), 100, TAG)
    with pytest.raises(OtherModel, match=r"model 00c0ffee .* expected model 00000001 with 100"):
        decode_support(data, 100, 1)
    with pytest.raises(OtherModel, match=r"with 100 parameters, expected .* with 101"):
        decode_support(data, 101, TAG)


def test_tags_tell_models_and_versions_apart() -> None:
    layers = {"weight": (10, 4), "bias": (10,)}
    others = [
        model_tag({"weight": (4, 10), "bias": (10,)}),
        model_tag({"bias": (10,), "weight": (10, 4)}),
        model_tag({"weights": (10, 4), "bias": (10,)}),
        model_tag(layers, "1"),
    ]
    assert model_tag(layers) == model_tag({"weight": [10, 4], "bias": [10]})
    assert len({model_tag(layers), *others}) == 5


def test_damage_anywhere_is_noticed() -> None:
    data = encode_support(random_support(200, 40), 200, TAG)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(MalformedSupport):
            decode_support(bytes(damaged), 200, TAG)
    for length in range(len(data)):
        with pytest.raises(MalformedSupport):
            decode_support(data[:length], 200, TAG)


@pytest.mark.parametrize(
    ("body", "k"),
    [
        (b"", 1),
        (b"\x00\x01\x00\x00\x00\x05", 1),
        (b"\x03\x01\x00\x00\x00\x00\x80", 1),  # no such form
        (index_part([1, 2, 3]), 2),
        (index_part([1, 2, 3]), 4),  # a run of three
        (index_part([1, 2, 3]) + b"\x00", 3),
        (index_part([1000], size=1001), 1),
        (index_part([1]), 0),
        (index_part(list(range(1001)), size=1001), 1001),
        (b"\x02" + index_part([2, 3, 7, 9])[1:], 3),  # two runs, longer than their three members
    ],
)
def test_forged_messages_are_refused(body: bytes, k: int) -> None:
    with pytest.raises(MalformedSupport):
        decode_support(forged(body, k), 1000, TAG)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(form=st.integers(0, 3), body=st.binary(max_size=130), k=st.integers(0, 1001))
def test_arbitrary_bodies_decode_to_a_support_or_are_refused(
    form: int, body: bytes, k: int
) -> None:
    try:
        support = decode_support(forged(bytes([form]) + body, k), 1000, TAG)
    except MalformedSupport:
        return
    assert support.size == k
    assert 0 <= support[0] <= support[-1] < 1000
    assert (np.diff(support) > 0).all()


def test_a_claim_of_many_indices_allocates_nothing() -> None:
    size = MAX_SIZE
    claims = [bytes([form]) + (size - 1).to_bytes(4, "little") + b"\x07" for form in range(3)]
    tracemalloc.start()
    for claim in (b"\x00\x07", *claims):
        with pytest.raises(MalformedSupport):
            decode_support(forged(claim, size - 1, size), size, TAG)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@settings(max_examples=100, deadline=None, derandomize=True)
@given(mask=hnp.arrays(bool, st.integers(1, 2_000)), run=st.integers(1, 60))
def test_signed_supports_survive(mask: NDArray[np.bool_], run: int) -> None:
    mask[-1] = True
    mask = np.repeat(mask, run)
    support = np.flatnonzero(mask)
    signs = np.random.default_rng(support.size).choice([-1, 1], support.size)
    data = encode_signed_support(support, signs, mask.size, TAG)
    indices, directions = decode_signed_support(data, mask.size, TAG)
    np.testing.assert_array_equal(indices, support)
    np.testing.assert_array_equal(directions, signs)
    assert directions.dtype == np.int8
    assert len(data) == len(encode_support(support, mask.size, TAG)) + -(-support.size // 8)


@pytest.mark.parametrize("signs", [[1], [1, 0], [1, 2], [[1, 1]]])
def test_a_sign_is_one_of_two(signs: list[int]) -> None:
    with pytest.raises(ValueError, match="signs: expected -1 or 1 for each of 2 indices"):
        encode_signed_support(np.array([1, 2]), np.array(signs), 5, TAG)


def test_supports_with_and_without_signs_are_not_taken_for_each_other() -> None:
    indices, signs = np.array([1, 5]), np.array([1, -1])
    with pytest.raises(MalformedSupport, match="starts with b'FRGP', not with b'FRGS'"):
        decode_support(encode_signed_support(indices, signs, 9, TAG), 9, TAG)
    with pytest.raises(MalformedSupport, match="starts with b'FRGS', not with b'FRGP'"):
        decode_signed_support(encode_support(indices, 9, TAG), 9, TAG)
    with pytest.raises(OtherModel, match="expected model 00000001"):
        decode_signed_support(encode_signed_support(indices, signs, 9, TAG), 9, 1)


def test_damage_of_signed_supports_is_noticed() -> None:
    support = random_support(200, 41)
    data = encode_signed_support(support, np.where(support % 2, 1, -1), 200, TAG)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(MalformedSupport):
            decode_signed_support(bytes(damaged), 200, TAG)
    for length in range(len(data)):
        with pytest.raises(MalformedSupport):
            decode_signed_support(data[:length], 200, TAG)


@pytest.mark.parametrize(
    ("body", "k"),
    [
        (b"", 1),
        (b"\x80", 1),  # signs, but no index
        (index_part([1]) + b"\xc0", 1),  # two signs for one index
        (index_part([1, 3]) + b"\x20", 2),  # a third sign
        (index_part([1000], size=1001) + b"\x80", 1),
        (index_part(list(range(1000))), 1000),  # no room for the signs
        (index_part(list(range(1001)), size=1001) + b"\xff" * 126, 1001),
    ],
)
def test_forged_signed_supports_are_refused(body: bytes, k: int) -> None:
    with pytest.raises(MalformedSupport):
        decode_signed_support(forged(body, k, magic=b"FRGP"), 1000, TAG)


def test_a_claim_of_many_signs_allocates_nothing() -> None:
    size = MAX_SIZE
    claim = forged(b"\x00\x07", size - 1, size, b"FRGP")
    tracemalloc.start()
    with pytest.raises(MalformedSupport):
        decode_signed_support(claim, size, TAG)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_many_supports_are_encoded_as_one_by_one() -> None:
    sparse = [random_support(1000, 3, seed) for seed in range(4)]
    dense = [random_support(1000, 450, seed) for seed in range(4)]
    runs = [np.arange(start, start + 450) for start in (0, 7)]
    mixed = [support for each in zip(sparse, dense, strict=True) for support in each] + runs
    messages = encode_supports(mixed, 1000, TAG)
    assert messages == [encode_support(support, 1000, TAG) for support in mixed]
    for message, support in zip(messages, mixed, strict=True):
        np.testing.assert_array_equal(decode_support(message, 1000, TAG), support)
    for found, support in zip(decode_supports(messages, 1000, TAG), mixed, strict=True):
        np.testing.assert_array_equal(found, support)
    assert encode_supports([], 1000, TAG) == decode_supports([], 1000, TAG) == []
    with pytest.raises(ValueError, match="strictly increasing"):
        encode_supports([sparse[0], sparse[0][::-1]], 1000, TAG)
