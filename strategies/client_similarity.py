"""How alike clients are, by what they tell: indices, updates, or the truth about their labels.

Each way has the same face: what to ask clients that have not told yet, how to read a reply, and the
matrix of similarities. Only ``index-overlap`` needs no values of parameters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from ..core.config import RunConfig
from ..core.methods.base import load
from ..core.methods.catalogue import methods
from ..core.methods.ios import Ios
from ..core.tasks import load_task
from ..core.wire.arrays import checked_arrays, flat_floats, from_record
from ..core.wire.events import SimilarityFound, SupportsFetched
from ..core.wire.keys import (
    ARRAYS,
    ASK_SUPPORT,
    ASK_UPDATE,
    HISTOGRAM,
    PAYLOAD,
    SIGNATURE,
    SUMMARY,
    SUPPORT,
)
from ..core.wire.records import record_at
from ..core.wire.signatures import decode_signature
from ..core.wire.supports import MalformedSupport
from ..selectors.cohorts.projection import Projection
from ..selectors.similarities.cosine import cosine_matrix
from ..selectors.similarities.euclidean import euclidean_matrix
from ..selectors.similarities.histograms import histogram_similarity
from ..selectors.similarities.index_overlap import overlap_matrix
from ..selectors.similarities.minhash import MinHashIndex, overlaps_by_signature
from .observations import answered, metrics_in
from .support_reader import SupportReader, parameter_shapes

Matrix = NDArray[np.float64]

LONGEST = 16_384  # numbers that are kept of an update
MOST_DRAWN = 200  # clients whose similarities the journal shows


def matrix_event(
    server_round: int, keys: Sequence[str], matrix: Matrix, labels: Mapping[str, str]
) -> SimilarityFound:
    """Return what the journal says of a similarity matrix: no more clients than can be drawn.

    >>> found = matrix_event(3, ["a", "b"], np.eye(2), {"a": "0", "b": "1"})
    >>> found.clients, found.matrix
    (['a', 'b'], [[1.0, 0.0], [0.0, 1.0]])
    """
    shown = list(keys)[:MOST_DRAWN]
    return SimilarityFound(
        round=server_round,
        clients=shown,
        matrix=matrix[: len(shown), : len(shown)].round(3).tolist(),
        labels={key: labels[key] for key in shown},
    )


class ClientSimilarity:
    """What is known of each client, and how alike that makes them."""

    question = ""  # kind of message that asks a client
    values = True  # whether values of parameters or of data are needed

    def __init__(self) -> None:
        self.told: dict[str, NDArray[Any]] = {}

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return what a config describes."""
        return cls()

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take what a reply tells, if anything; ValueError if that makes no sense."""
        raise NotImplementedError

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the similarities of clients that have told."""
        raise NotImplementedError

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return the clients that are to be asked for what they hold before they are compared."""
        return []

    def account(self, server_round: int, keys: Sequence[str]) -> SupportsFetched | None:
        """Return what the journal says about what clients were asked for, if anything."""
        return None

    def collected(self) -> dict[str, Any]:
        """Return what clients have sent that a run may keep: no values of parameters or data."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what clients have told."""
        return {"told": self.told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.told = dict(state["told"])


class IndexOverlap(ClientSimilarity):
    """IOS: the share of important parameters that two clients have in common.

    Parameters
    ----------
    reader : SupportReader
        Knows the model that supports must be of.
    """

    question = ASK_SUPPORT
    values = False

    def __init__(self, reader: SupportReader) -> None:
        super().__init__()
        self.reader = reader

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return the overlap of supports, or of their signatures if clients send these."""
        reader = SupportReader(parameter_shapes(config))
        ios = config[Ios]
        return SignatureOverlap(reader, ios.hashes, ios.bands) if ios.signatures else cls(reader)

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the support of a client; one of another model is refused."""
        if SUPPORT in reply.content:  # else nothing matters to it
            self.told[key] = self.reader.read(reply)

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the overlaps of all pairs."""
        return overlap_matrix([self.told[key] for key in keys])

    def collected(self) -> dict[str, Any]:
        """Return the supports, as clients encoded them."""
        return self.reader.packed(self.told)


class Cosine(ClientSimilarity):
    """The cosine of two clients' updates.

    Of updates longer than :data:`LONGEST` a sketch of that length is kept, whose scalar products
    are theirs but for about a hundredth of the product of the lengths.
    """

    question = ASK_UPDATE

    def __init__(self) -> None:
        super().__init__()
        self._projection: Projection | None = None

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the update of a client."""
        after = record_at(reply.content, ARRAYS, ArrayRecord)
        if after is None:
            raise ValueError("no model in the reply")
        update = flat_floats(checked_arrays(after, sent)) - flat_floats(from_record(sent))
        self.told[key] = update if update.size <= LONGEST else self._sketch(update)

    def _sketch(self, update: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._projection is None:
            self._projection = Projection([update.size], LONGEST, coordinates=update.size)
        return self._projection.sketch([update]).astype(np.float32)

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the cosines of all pairs."""
        return cosine_matrix([self.told[key] for key in keys])


class Euclidean(Cosine):
    """The distance of two clients' updates, as a similarity."""

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the similarities of all pairs."""
        return euclidean_matrix([self.told[key] for key in keys])


class Oracle(ClientSimilarity):
    """The truth: how alike the label histograms are. Only in simulation.

    Parameters
    ----------
    labels : int
        How many there are.
    """

    question = SUMMARY

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return what a config describes."""
        return cls(load_task(config.task_spec()).num_classes)

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take the histogram, if the reply is the answer to a question for it."""
        if HISTOGRAM not in metrics_in(reply):
            return
        counts = np.asarray(answered(HISTOGRAM, labels=self.labels)(reply), dtype=np.float64)
        if not counts.any():
            raise ValueError("a histogram of no samples: it cannot be compared")
        self.told[key] = counts

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return one minus the Jensen-Shannon divergence of all pairs."""
        return histogram_similarity([self.told[key] for key in keys])


class SignatureOverlap(ClientSimilarity):
    """IOS by signatures: supports are asked for where signatures say that two are alike.

    Algorithm 2 of the paper. Clients send MinHash signatures. Those that share a band with another
    are candidates, and their supports are fetched; the overlaps of all supports held are exact.
    All others are estimated from the signatures.

    Parameters
    ----------
    reader : SupportReader
        Knows the model that supports must be of.
    hashes, bands : int
        Length of a signature, and how many bands it is cut into.
    """

    question = ASK_SUPPORT
    values = False

    def __init__(self, reader: SupportReader, hashes: int, bands: int) -> None:
        super().__init__()
        self.reader = reader
        self.index = MinHashIndex(hashes, bands)
        self.counts: dict[str, int] = {}  # of the indices that were signed
        self.supports: dict[str, NDArray[np.int64]] = {}  # fetched, and still what was signed
        self._fetched: list[str] = []  # since the journal was told

    def hear(self, key: str, reply: Message, sent: ArrayRecord) -> None:
        """Take a signature, or the support that was asked for."""
        if SUPPORT not in reply.content:  # nothing matters to it
            return
        record = record_at(reply.content, SUPPORT, ConfigRecord)
        if record is not None and PAYLOAD in record:
            support = self.reader.read(reply)
            if key in self.told:
                self.supports[key] = support
                self._fetched.append(key)
            return
        payload = record.get(SIGNATURE) if record is not None else None
        if not isinstance(payload, bytes):
            raise MalformedSupport("no signature in the reply")
        told = decode_signature(payload)
        told.check_model(self.reader.size, self.reader.tag)
        self.index.add_signature(key, told.signature)
        if key in self.told and not np.array_equal(self.told[key], told.signature):
            self.supports.pop(key, None)  # it was of another round
        self.told[key], self.counts[key] = told.signature, told.count

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
        return overlaps_by_signature(signatures, counts, held)

    def collected(self) -> dict[str, Any]:
        """Return the signatures, and the supports that were fetched."""
        signed = {
            key: {"signature": self.told[key], "count": self.counts[key]} for key in self.told
        }
        return {**self.reader.packed(self.supports), "signatures": signed}

    def state_dict(self) -> dict[str, Any]:
        """Return signatures and supports."""
        return {**super().state_dict(), "counts": self.counts, "supports": self.supports}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.counts, self.supports = dict(state["counts"]), dict(state["supports"])
        for key, signature in self.told.items():
            self.index.add_signature(key, signature)


def client_similarity(config: RunConfig) -> ClientSimilarity:
    """Return what a run compares clients by."""
    found: ClientSimilarity = load(methods("similarity")[config.similarity].layer)(config)
    return found
