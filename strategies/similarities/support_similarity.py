"""The similarity of clients by supports: the parameters that matter to them, or changed most.

Clients send supports, or signatures of them. With signatures, supports are asked for where two
signatures are alike.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.fisher import trainable_shapes
from ...core.log.events import SupportsFetched
from ...core.methods.ios import BANDS, HASHES, Ios
from ...core.tasks import load_task
from ...core.wire.keys import ASK_SUPPORT, PAYLOAD, SIGNATURE, SIZE, SUPPORT
from ...core.wire.records import filled
from ...core.wire.replies import Replies, Row
from ...core.wire.supports import (
    MalformedSupport,
    decode_signature,
    decode_signed_support,
    decode_support,
    decode_supports,
    encode_support,
    model_tag,
)
from ...selectors.similarities.index_overlap import centred_overlap_matrix, overlap_matrix
from ...selectors.similarities.minhash import (
    MinHashIndex,
    centred_overlaps_by_signature,
    overlaps_by_signature,
    signed_overlaps_by_signature,
)
from ...selectors.similarities.signed_overlap import signed_codes, signed_overlap_matrix
from .client_similarity import ClientSimilarity, Matrix


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


class SupportSimilarity(ClientSimilarity):
    """The overlap of supports, in one of several ways.

    The reader knows the model that supports must be of.
    """

    question = ASK_SUPPORT
    own_records = (SUPPORT,)
    reads: ClassVar[type[SupportReader]] = SupportReader
    exactly: ClassVar[Callable[..., Matrix]]  # of all pairs of supports
    by_signature: ClassVar[Callable[..., Matrix]]  # of all pairs of signatures

    def __init__(self, reader: SupportReader) -> None:
        super().__init__()
        self.reader = reader

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return the overlap of supports, or of their signatures if clients send these."""
        exact = cls(cls.reads(parameter_shapes(config)))
        return SignatureSimilarity(exact, HASHES, BANDS) if config[Ios].signatures else exact

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take the support of a client; one of another model is refused."""
        if row.has(SUPPORT):  # else nothing matters to it
            self.told[key] = self.reader.read(row)

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the overlaps of all pairs."""
        return type(self).exactly([self.told[key] for key in keys])

    def collected(self) -> dict[str, Any]:
        """Return the supports, as clients encoded them."""
        return {} if self.values else self.reader.packed(self.told)


class CentredOverlap(SupportSimilarity):
    """The share of important parameters in common, of those that are not important to everyone."""

    values = False
    exactly = staticmethod(centred_overlap_matrix)
    by_signature = staticmethod(centred_overlaps_by_signature)


class IndexOverlap(SupportSimilarity):
    """The share of important parameters that two clients have in common (IOS)."""

    remembers = ("told", "sizes")
    values = False
    exactly = staticmethod(overlap_matrix)
    by_signature = staticmethod(overlaps_by_signature)

    def __init__(self, reader: SupportReader) -> None:
        super().__init__(reader)
        self.sizes: dict[str, int] = {}  # the K that each client found for itself

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take the support of a client, and its own K."""
        super().hear(key, row, sent)
        own = (row.config(SUPPORT) or {}).get(SIZE)
        if own is not None:
            if type(own) is not int or not 1 <= own <= self.reader.size:
                raise MalformedSupport(f"K = {own!r}, of {self.reader.size} parameters")
            self.sizes[key] = own

    def size(self) -> int:
        """Return the mean K of all clients that have reported (section 6)."""
        return round(float(np.mean(list(self.sizes.values())))) if self.sizes else 0

    def news(self) -> dict[str, ConfigRecord]:
        """Return how many parameters clients are to report, once that is known."""
        return {SUPPORT: filled(ConfigRecord, {SIZE: self.size()})} if self.sizes else {}


class SignedOverlap(SupportSimilarity):
    """How far two clients changed the same parameters in the same direction.

    A sign is part of a value, so what clients send is not kept with the run.
    """

    reads = SignedSupportReader
    exactly = staticmethod(signed_overlap_matrix)
    by_signature = staticmethod(signed_overlaps_by_signature)


class SignatureSimilarity(ClientSimilarity):
    """Overlaps by signatures: supports are fetched if the signatures of two clients are alike.

    Algorithm 2 of the paper. Clients send MinHash signatures. Those that share a band with another
    are candidates, and their supports are fetched; the overlaps of all supports held are exact.
    All others are estimated from the signatures.
    """

    remembers = ("told", "counts", "supports")
    question = ASK_SUPPORT
    own_records = (SUPPORT,)

    def __init__(self, exact: SupportSimilarity, hashes: int, bands: int) -> None:
        super().__init__()
        self.exact, self.reader, self.values = exact, exact.reader, exact.values
        self.index = MinHashIndex(hashes, bands)
        self.counts: dict[str, int] = {}  # of the indices that were signed
        self.supports: dict[str, NDArray[np.int64]] = {}  # fetched, and still what was signed
        self._fetched: list[str] = []  # since the last journal entry

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take a signature, or the support that was asked for."""
        if not row.has(SUPPORT):  # nothing matters to it
            return
        told = row.config(SUPPORT) or {}
        if PAYLOAD in told:
            support = self.reader.read(row)
            if key in self.told:
                self.supports[key] = support
                self._fetched.append(key)
            return
        payload = told.get(SIGNATURE)
        if not isinstance(payload, bytes):
            raise MalformedSupport("no signature in the reply")
        signed = decode_signature(payload)
        signed.check_model(self.reader.size, self.reader.tag)
        self.index.add_signature(key, signed.signature)
        if key in self.told and not np.array_equal(self.told[key], signed.signature):
            self.supports.pop(key, None)  # it was of another round
        self.told[key], self.counts[key] = signed.signature, signed.count

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return the clients of candidate pairs whose supports are not held."""
        candidates = {key for pair in self._pairs(keys) for key in pair}
        return [key for key in keys if key in candidates and key not in self.supports]

    def _pairs(self, keys: Sequence[str]) -> list[tuple[Any, Any]]:
        wanted = set(keys)
        return [(a, b) for a, b in self.index.candidate_pairs() if a in wanted and b in wanted]

    def account(self, server_round: int, keys: Sequence[str]) -> SupportsFetched:
        """Return how many pairs were candidates, and whose supports were fetched."""
        fetched, self._fetched = self._fetched, []
        return SupportsFetched(
            round=server_round,
            signatures=len(keys),
            candidate_pairs=len(self._pairs(keys)),
            pairs=len(keys) * (len(keys) - 1) // 2,
            fetched=fetched,
        )

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the overlaps of all pairs: exact for supports that are held, else estimated."""
        signatures = np.array([self.told[key] for key in keys])
        counts = [self.counts[key] for key in keys]
        held = {i: self.supports[key] for i, key in enumerate(keys) if key in self.supports}
        return type(self.exact).by_signature(signatures, counts, held)

    def collected(self) -> dict[str, Any]:
        """Return the signatures, and the supports that were fetched."""
        if self.values:
            return {}
        signed = {
            key: {"signature": self.told[key], "count": self.counts[key]} for key in self.told
        }
        return {**self.reader.packed(self.supports), "signatures": signed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        for key, signature in self.told.items():
            self.index.add_signature(key, signature)
