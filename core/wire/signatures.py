"""Signatures as bytes: a MinHash signature of a support, and of which model's.

The body of a message (:mod:`core.wire.subsets`) is the hashes, 32 bits each; its header has the
model's tag, its number of parameters, the number of indices (32 bits each) and of hashes (16).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .subsets import Envelope, MalformedUpdate
from .supports import check_count, check_model

_ENVELOPE = Envelope("signature", b"FRGH", 1, "IIIH")

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
        check_model("signature", (self.tag, self.size), tag, size)


def encode_signature(signature: NDArray[np.uint32], count: int, size: int, tag: int) -> bytes:
    """Encode the signature of a support with ``count`` indices of a model."""
    if signature.dtype != np.uint32 or not 0 < signature.size <= MOST_HASHES:
        raise ValueError(
            f"signature: expected 1 to {MOST_HASHES} values of uint32, "
            f"got {signature.dtype} of shape {signature.shape}"
        )
    numbers = tag, size, count, signature.size
    return _ENVELOPE.seal(numbers, signature.astype("<u4").tobytes())


def decode_signature(data: bytes) -> Signed:
    """Decode a signature; :class:`MalformedUpdate` if the bytes are none."""
    (tag, size, count, hashes), body = _ENVELOPE.open(data)
    if not 0 < hashes <= MOST_HASHES or len(body) != 4 * hashes:
        raise MalformedUpdate(f"{len(body)} bytes for {hashes} hashes")
    check_count(count, size)
    return Signed(np.frombuffer(body, dtype="<u4").astype(np.uint32), count, size, tag)
