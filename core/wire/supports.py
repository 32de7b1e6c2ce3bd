"""Supports as bytes: which parameters of which model matter most to a client.

The body of a message (:mod:`core.wire.envelope`) is an index part of :mod:`core.wire.subsets`, near
log2 C(M, K) bits; its header has the model's tag, its number of parameters M and the number of
indices K, 32 bits each. In a signed support one bit per index follows: 1 where the parameter grew,
0 where it fell; the last byte is filled up with zeros.

The reader names the model, so nothing larger than its number of parameters is ever made.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .envelope import Envelope, MalformedUpdate
from .subsets import Indices, checked_indices, in_parts, pack_index_sets, unpack_index_sets

_PLAIN = Envelope("support", b"FRGS", 2, "III")
_SIGNED = Envelope("signed support", b"FRGP", 2, "III")

Signs = NDArray[np.int8]
MalformedSupport = MalformedUpdate  # what readers of supports and signatures call it


class OtherModel(MalformedSupport):
    """A support of another model, or version of it: its indices mean other parameters."""


def model_tag(shapes: Mapping[str, Sequence[int]], version: str = "") -> int:
    """Return the tag of a model: of its parameters' names and shapes in order, and its version."""
    described = [f"{name}={tuple(int(side) for side in shape)}" for name, shape in shapes.items()]
    return zlib.crc32("\n".join([*described, version]).encode())


def encode_support(indices: NDArray[np.integer[Any]], size: int, tag: int) -> bytes:
    """Encode a support of a model."""
    return encode_supports([indices], size, tag)[0]


def encode_supports(
    supports: Sequence[NDArray[np.integer[Any]]], size: int, tag: int
) -> list[bytes]:
    """Encode many supports of a model."""
    sets = [checked_indices(support, size) for support in supports]
    heads = [_checked_head(tag, size, own) for own in sets]
    bodies = [own for at in in_parts(len(sets), size) for own in pack_index_sets(sets[at], size)]
    return list(map(_PLAIN.seal, heads, bodies))


def encode_signed_support(
    indices: NDArray[np.integer[Any]], signs: NDArray[np.integer[Any]], size: int, tag: int
) -> bytes:
    """Encode a support of a model with the sign of the change at each index."""
    checked, directions = checked_indices(indices, size), np.asarray(signs)
    if directions.shape != checked.shape or not np.isin(directions, (-1, 1)).all():
        raise ValueError(f"signs: expected -1 or 1 for each of {checked.size} indices")
    (body,), bits = pack_index_sets([checked], size), np.packbits(directions > 0)
    return _SIGNED.seal(_checked_head(tag, size, checked), body, bits.tobytes())


def decode_support(data: bytes, size: int, tag: int) -> Indices:
    """Decode a support of the model with ``size`` parameters and this tag, as increasing int64.

    One of another model raises :class:`OtherModel`, other bytes :class:`MalformedSupport`.
    """
    return decode_supports([data], size, tag)[0]


def decode_supports(messages: Sequence[bytes], size: int, tag: int) -> list[Indices]:
    """Decode many supports of a model; one that is malformed spoils all."""
    opened = [_opened(_PLAIN, data, size, tag) for data in messages]
    parts = (zip(*opened[at], strict=True) for at in in_parts(len(opened), size))
    return [own for ks, bodies in parts for own in unpack_index_sets(bodies, size, ks)]


def decode_signed_support(data: bytes, size: int, tag: int) -> tuple[Indices, Signs]:
    """Decode a signed support: increasing indices as int64, and -1 or 1 for each as int8."""
    k, body = _opened(_SIGNED, data, size, tag)
    length = -(-k // 8)
    if len(body) <= length:
        raise MalformedSupport(
            f"{len(body)} bytes for indices and signs: the signs alone take {length}"
        )
    (indices,) = unpack_index_sets([body[:-length]], size, [k])
    bits = np.unpackbits(np.frombuffer(body[-length:], dtype=np.uint8))
    if bits[k:].any():
        raise MalformedSupport(f"more signs than the {k} indices")
    return indices, 2 * bits[:k].astype(np.int8) - 1


def check_model(what: str, told: tuple[int, int], tag: int, size: int) -> None:
    """Raise :class:`OtherModel` unless tag and size are those of the model that is meant."""
    if told != (tag, size):
        raise OtherModel(
            f"{what} is of model {told[0]:08x} with {told[1]} parameters, "
            f"expected model {tag:08x} with {size}"
        )


def check_count(count: int, size: int) -> None:
    """Refuse a support that has no index, or more than the model has parameters."""
    if not 1 <= count <= size:
        raise MalformedSupport(f"support of {count} indices: expected 1 to {size}, the parameters")


def _opened(kind: Envelope, data: bytes, size: int, tag: int) -> tuple[int, memoryview]:
    """Return number of indices and body of a message that is of the model which is meant."""
    (found_tag, found_size, k), body = kind.open(data)
    check_model("support", (found_tag, found_size), tag, size)
    check_count(k, size)
    return k, body


def _checked_head(tag: int, size: int, indices: Indices) -> tuple[int, int, int]:
    if not 0 <= tag < 2**32:
        raise ValueError(f"tag: expected 0 to {2**32 - 1}, as model_tag returns, got {tag}")
    check_count(indices.size, size)
    return tag, size, indices.size
