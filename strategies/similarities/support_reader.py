"""Reading the supports that clients send, and packing them up to be kept."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.fisher import trainable_shapes
from ...core.tasks import load_task
from ...core.wire.keys import PAYLOAD, SUPPORT
from ...core.wire.replies import Replies, Row
from ...core.wire.supports import (
    MalformedSupport,
    decode_signed_support,
    decode_support,
    decode_supports,
    encode_support,
    model_tag,
)
from ...selectors.similarities.signed_overlap import signed_codes


class SupportReader:
    """Reads supports out of replies.

    Shapes are those of the model's parameters, in their order.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self.size = sum(math.prod(shape) for shape in shapes.values())
        self.tag = model_tag(shapes)
        self._table: Replies | None = None  # whose supports were decoded last
        self._found: dict[int, NDArray[np.int64]] = {}

    def read(self, row: Row) -> NDArray[np.int64]:
        """Return the support in a reply; ValueError if it is missing or of another model.

        Those of a table are decoded together, when the first of them is read.
        """
        if row.table is not self._table:
            self._table, self._found = row.table, self._read_all(row.table)
        if row.place in self._found:
            return self._found[row.place]
        return decode_support(self.payload(row), self.size, self.tag)

    def _read_all(self, table: Replies) -> dict[int, NDArray[np.int64]]:
        """Return all supports of a table; none if one of them cannot be read."""
        rows = [row for row in table.rows() if PAYLOAD in (row.config(SUPPORT) or {})]
        try:
            supports = decode_supports([self.payload(row) for row in rows], self.size, self.tag)
        except MalformedSupport:  # whose it is, is found one by one
            return {}
        return {row.place: found for row, found in zip(rows, supports, strict=True)}

    def payload(self, row: Row) -> bytes:
        """Return the bytes of the support in a reply."""
        payload = (row.config(SUPPORT) or {}).get(PAYLOAD)
        if not isinstance(payload, bytes):
            raise MalformedSupport("no support in the reply")
        return payload

    def packed(self, supports: Mapping[str, NDArray[np.int64]]) -> dict[str, Any]:
        """Return supports as they are kept in a file: as the bytes that were sent."""
        sent = {key: encode_support(s, self.size, self.tag) for key, s in supports.items()}
        arrays = {key: np.frombuffer(data, dtype=np.uint8) for key, data in sent.items()}
        return {"size": self.size, "tag": self.tag, "supports": arrays}


class SignedSupportReader(SupportReader):
    """Reads supports with signs out of replies, as codes."""

    def read(self, row: Row) -> NDArray[np.int64]:
        """Return the codes of the support in a reply."""
        return signed_codes(*decode_signed_support(self.payload(row), self.size, self.tag))


def parameter_shapes(config: RunConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the trained parameters of a run's model."""
    return trainable_shapes(load_task(config.task_spec()).build_model())
