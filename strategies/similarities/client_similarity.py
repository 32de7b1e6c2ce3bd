"""The similarity of clients by what they send: indices, updates, or (oracle) label histograms.

Each way has the same interface: what to ask clients that have not reported yet, how to read a
reply, and the similarity matrix. Those by supports are in ``support_similarity.py``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.log.events import SimilarityFound, SupportsFetched
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.tasks import load_task
from ...core.wire.arrays import flat_floats, from_record
from ...core.wire.keys import ARRAYS, ASK_UPDATE, HISTOGRAM, SUMMARY
from ...core.wire.replies import Row
from ...selectors.cohorts.projection import Projection
from ...selectors.similarities.gram import cosine_matrix, euclidean_matrix
from ...selectors.similarities.histograms import histogram_similarity
from ...selectors.stateful import Stateful
from ..federation.observations import answered

Matrix = NDArray[np.float64]

LONGEST = 16_384  # numbers that are kept of an update
MOST_DRAWN = 200  # clients whose similarities the journal shows


def matrix_event(
    server_round: int, keys: Sequence[str], matrix: Matrix, labels: Mapping[str, str]
) -> SimilarityFound:
    """Return the event of a similarity matrix: no more clients than can be drawn."""
    shown = list(keys)[:MOST_DRAWN]
    return SimilarityFound(
        round=server_round,
        clients=shown,
        matrix=matrix[: len(shown), : len(shown)].round(3).tolist(),
        labels={key: labels[key] for key in shown},
    )


class ClientSimilarity(Stateful):
    """The reports of clients, and the similarities that follow from them."""

    remembers: ClassVar[tuple[str, ...]] = ("told",)
    question = ""  # kind of message that asks a client
    values = True  # whether values of parameters or of data are needed
    own_records: tuple[str, ...] = ()  # of training replies, that nobody else needs

    def __init__(self) -> None:
        self.told: dict[str, NDArray[Any]] = {}

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return what a config describes."""
        return cls()

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take what a reply brings, if anything; ValueError if that makes no sense."""
        raise NotImplementedError

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return the similarities of clients that have reported."""
        raise NotImplementedError

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return the clients that are to be asked for what they hold before they are compared."""
        return []

    def news(self) -> dict[str, ConfigRecord]:
        """Return the records that clients get with a message that they report after."""
        return {}

    def account(self, server_round: int, keys: Sequence[str]) -> SupportsFetched | None:
        """Return the event about the supports that clients were asked for, if any."""
        return None

    def collected(self) -> dict[str, Any]:
        """Return what clients have sent that a run may keep: no values of parameters or data."""
        return {}


class Cosine(ClientSimilarity):
    """The cosine of two clients' updates.

    Updates longer than :data:`LONGEST` are kept as sketches of that length; scalar products then
    have an error of about a hundredth of the product of the norms.
    """

    question = ASK_UPDATE

    def __init__(self) -> None:
        super().__init__()
        self._projection: Projection | None = None

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take the update of a client."""
        before = from_record(sent)
        update = flat_floats(row.arrays(ARRAYS, before)) - flat_floats(before)
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
    """The true similarity, by label histograms. Only in simulation."""

    question = SUMMARY

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels

    @classmethod
    def of_run(cls, config: RunConfig) -> "ClientSimilarity":
        """Return what a config describes."""
        return cls(load_task(config.task_spec()).num_classes)

    def hear(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Take the histogram, if the reply is the answer to a question for it."""
        if HISTOGRAM not in row.metrics:
            return
        alone = row.table.select([row.place])
        (counts,), wrong = answered(HISTOGRAM, labels=self.labels)(alone)
        if wrong:
            raise ValueError(wrong[0])
        counts = np.asarray(counts, dtype=np.float64)
        if not counts.any():
            raise ValueError("a histogram of no samples: it cannot be compared")
        self.told[key] = counts

    def matrix(self, keys: Sequence[str]) -> Matrix:
        """Return one minus the Jensen-Shannon divergence of all pairs."""
        return histogram_similarity([self.told[key] for key in keys])


def client_similarity(config: RunConfig) -> ClientSimilarity:
    """Return what a run compares clients by."""
    found: ClientSimilarity = load(methods("similarity")[config.similarity].layer)(config)
    return found
