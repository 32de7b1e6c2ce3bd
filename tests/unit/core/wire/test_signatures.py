import zlib

import numpy as np
import pytest
from forager.core.wire.supports import (
    MOST_HASHES,
    MalformedSupport,
    OtherModel,
    decode_signature,
    encode_signature,
)

SIGNATURE = np.array([0, 1, 2**32 - 1, 7], dtype=np.uint32)
COUNT_AT, HASHES_AT = 13, 17


def sealed(message: bytes) -> bytes:
    """Forge a valid checksum, so that the checks behind it are the ones that are tested."""
    return message + zlib.crc32(message).to_bytes(4, "little")


def test_signatures_survive_in_four_bytes_a_hash() -> None:
    data = encode_signature(SIGNATURE, count=50, size=1000, tag=0xC0FFEE)
    told = decode_signature(data)
    np.testing.assert_array_equal(told.signature, SIGNATURE)
    assert told.signature.dtype == np.uint32
    assert (told.count, told.size, told.tag) == (50, 1000, 0xC0FFEE)
    assert len(data) == 4 * SIGNATURE.size + 23


def test_a_signature_of_another_model_is_refused_by_name() -> None:
    told = decode_signature(encode_signature(SIGNATURE, 5, 100, tag=0xC0FFEE))
    told.check_model(100, 0xC0FFEE)
    with pytest.raises(OtherModel, match=r"model 00c0ffee .* expected model 00000001 with 100"):
        told.check_model(100, 1)
    with pytest.raises(OtherModel, match=r"with 100 parameters, expected .* with 101"):
        told.check_model(101, 0xC0FFEE)


def test_damage_anywhere_is_noticed() -> None:
    data = encode_signature(SIGNATURE, 5, 100, tag=3)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(MalformedSupport):
            decode_signature(bytes(damaged))
        with pytest.raises(MalformedSupport):
            decode_signature(data[:at])


@pytest.mark.parametrize(
    ("at", "number", "reason"),
    [
        (COUNT_AT, 0, "0 indices"),
        (COUNT_AT, 101, "101 indices"),
        (HASHES_AT, 3, "for 3 hashes"),
        (HASHES_AT, 5, "for 5 hashes"),
    ],
)
def test_forged_messages_are_refused(at: int, number: int, reason: str) -> None:
    message = bytearray(encode_signature(SIGNATURE, 5, 100, tag=3)[:-4])
    message[at] = number
    with pytest.raises(MalformedSupport, match=reason):
        decode_signature(sealed(bytes(message)))


def test_what_is_no_signature_is_refused() -> None:
    for signature in (SIGNATURE.astype(np.int64), SIGNATURE[:0], np.zeros(MOST_HASHES + 1, "u4")):
        with pytest.raises(ValueError, match="signature: expected"):
            encode_signature(signature, 5, 100, tag=3)
