"""Signatures as bytes: a MinHash signature of a support, and of which model's.

A message, little-endian throughout, is ::

    header      magic FRGH, version (u8), model tag (u32), number of parameters M (u32), number of
                indices K (u32), number of hashes (u16)
    body        the hashes, 32 bits each
    checksum    CRC-32 of all that precedes
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .supports import MalformedSupport, OtherModel

_MAGIC = b"FRGH"
_VERSION = 1
_HEADER = struct.Struct("<4sBIIIH")
_CHECKSUM = struct.Struct("<I")

MOST_HASHES = 4096


@dataclass(frozen=True)
class Signed:
    """What a message says: the signature, and of how many indices of which model."""

    signature: NDArray[np.uint32]
    count: int
    size: int
    tag: int

    def check_model(self, size: int, tag: int) -> None:
        """Raise :class:`OtherModel` unless it is of the model with this size and tag."""
        if (self.tag, self.size) != (tag, size):
            raise OtherModel(
                f"signature is of model {self.tag:08x} with {self.size} parameters, "
                f"expected model {tag:08x} with {size}"
            )


def encode_signature(signature: NDArray[np.uint32], count: int, size: int, tag: int) -> bytes:
    """Encode the signature of a support with ``count`` indices of a model.

    >>> data = encode_signature(np.array([7, 9], dtype=np.uint32), count=3, size=10, tag=5)
    >>> decode_signature(data).signature.tolist(), len(data)
    ([7, 9], 31)
    """
    if signature.dtype != np.uint32 or not 0 < signature.size <= MOST_HASHES:
        raise ValueError(
            f"signature: expected 1 to {MOST_HASHES} values of uint32, "
            f"got {signature.dtype} of shape {signature.shape}"
        )
    header = _HEADER.pack(_MAGIC, _VERSION, tag, size, count, signature.size)
    message = header + signature.astype("<u4").tobytes()
    return message + _CHECKSUM.pack(zlib.crc32(message))


def decode_signature(data: bytes) -> Signed:
    """Decode a signature; :class:`MalformedSupport` if the bytes are none."""
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise MalformedSupport(f"{len(data)} bytes are too few for a signature")
    magic, version, tag, size, count, hashes = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise MalformedSupport(f"starts with {magic!r}, version {version}: not a signature")
    sealed, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if _CHECKSUM.pack(zlib.crc32(sealed)) != checksum:
        raise MalformedSupport("checksum does not match: the signature is damaged or cut short")
    body = sealed[_HEADER.size :]
    if not 0 < hashes <= MOST_HASHES or len(body) != 4 * hashes:
        raise MalformedSupport(f"{len(body)} bytes for {hashes} hashes")
    if not 1 <= count <= size:
        raise MalformedSupport(f"support of {count} indices: expected 1 to {size}, the parameters")
    return Signed(np.frombuffer(body, dtype="<u4").astype(np.uint32), count, size, tag)
