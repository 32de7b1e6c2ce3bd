"""A header, a body and a checksum: the form that sparse updates, supports and signatures share.

The checksum notices accidents; a forged message may carry a valid one. So readers check everything
again, and memory stays in proportion to the bytes present or to a size that they named.
"""

import struct
import zlib

_CHECKSUM = struct.Struct("<I")


class MalformedUpdate(ValueError):
    """Bytes that are not a valid message: damaged, truncated, forged or of another kind."""


class Envelope:
    """Messages of one kind: four letters, version (u8), numbers, body, CRC-32; little-endian."""

    def __init__(self, what: str, magic: bytes, version: int, numbers: str) -> None:
        self._what, self._magic, self._version = what, magic, version
        self._header = struct.Struct(f"<4sB{numbers}")

    def seal(self, numbers: tuple[int, ...], *parts: bytes) -> bytes:
        """Join header, the parts of the body, and checksum."""
        message = b"".join((self._header.pack(self._magic, self._version, *numbers), *parts))
        return message + _CHECKSUM.pack(zlib.crc32(message))

    def open(self, data: bytes) -> tuple[tuple[int, ...], memoryview]:
        """Return numbers and body, which are not judged yet."""
        view = memoryview(data)
        if len(view) < self._header.size + _CHECKSUM.size:
            raise MalformedUpdate(f"{len(view)} bytes are too few for a {self._what}")
        magic, version, *numbers = self._header.unpack_from(view)
        if magic != self._magic:
            raise MalformedUpdate(f"starts with {magic!r}, not with {self._magic!r}")
        if version != self._version:
            raise MalformedUpdate(
                f"version {version} is not known; this reader knows {self._version}"
            )
        sealed = view[: -_CHECKSUM.size]
        if _CHECKSUM.pack(zlib.crc32(sealed)) != view[-_CHECKSUM.size :]:
            raise MalformedUpdate(
                f"checksum does not match: the {self._what} is damaged or cut short"
            )
        return tuple(numbers), sealed[self._header.size :]
