"""Every client its own model, mixed from those of the clients most like it.

Personalised averaging over a similarity graph (IOS, section 5): client i starts its local training
from ``sum_j w_ij theta_j`` over itself and its k nearest neighbours, with weights in proportion to
their similarity, where theta_j is what client j trained last.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import ARRAYS, CONFIG, HISTOGRAM, ROUND, SUMMARY, SUPPORT, WANTS
from ..core.wire.records import attach, sent_arrays
from .client_similarity import ClientSimilarity, matrix_event
from .cohort_rules.base import ONLY
from .flower_aggregator import RunningMean
from .layer import Layer
from .roster import Roster

_log = logging.getLogger("forager")


class Neighbours(Layer):
    """Send every client the mixture of its neighbours' models.

    The strategy inside chooses clients and makes a global model of their replies, which clients
    start from that have not trained yet.

    Parameters
    ----------
    inner : Strategy
        Chooses and aggregates.
    roster : Roster
        Stable names of the clients.
    similarity : ClientSimilarity
        What makes clients neighbours.
    count : int (default: 8)
        Neighbours of each client, itself not counted.
    first, every : int (default: 2, 5)
        In round ``first``, and every so many rounds after it, the similarities are written down,
        and supports are fetched where clients send only signatures.
    timeout : float (default: 60.0)
        Seconds to wait for what clients are asked for besides training.
    """

    own_records = (SUPPORT,)

    def __init__(
        self,
        inner: Strategy,
        roster: Roster,
        similarity: ClientSimilarity,
        *,
        count: int = 8,
        first: int = 2,
        every: int = 5,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(inner)
        self.roster = roster
        self.similarity = similarity
        self.count = count
        self.first, self.every = first, every
        self.timeout = timeout
        self.models: dict[str, dict[str, NDArray[Any]]] = {}  # what each client trained last
        self._sent: dict[int, ArrayRecord] = {}
        self._weights: dict[str, dict[str, float]] = {}  # of this round's graph
        self._matrix: NDArray[np.float64] = np.empty((0, 0))  # of the clients in it

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, then put each client's own mixture in place of the global model."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        if self.similarity.question == SUMMARY:
            self._ask_truth(server_round, grid)
        if self._due(server_round):
            self._fetch(server_round, grid)
        self._link()
        mixed = [self._personal(message) for message in messages]
        self._sent = {m.metadata.dst_node_id: sent_arrays(m, ARRAYS) for m in mixed}
        return mixed

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let each client evaluate its own mixture."""
        self._link()
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        return [self._personal(message) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep each client's model and what makes it alike others; aggregate for newcomers."""
        result = super().aggregate_train(server_round, self._keeping(replies))
        graph = {key: sorted(weights) for key, weights in self._weights.items()}
        self.journal("neighbours", round=server_round, graph=graph, values=self.similarity.values)
        if graph and self._due(server_round):
            labels = dict.fromkeys(graph, ONLY)
            shown = matrix_event(list(graph), self._matrix, labels)
            self.journal("similarity", round=server_round, **shown)
        return result

    def _due(self, server_round: int) -> bool:
        return server_round >= self.first and (server_round - self.first) % self.every == 0

    def _keeping(self, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            if not reply.has_error():
                node = reply.metadata.src_node_id
                key = self.roster.key(node)
                arrays = from_record(sent_arrays(reply, ARRAYS))
                self.models[key] = {name: np.array(array) for name, array in arrays.items()}
                self._hear(reply, self._sent[node])
            yield reply

    def _ask_truth(self, server_round: int, grid: Grid) -> None:
        known = self.similarity.told
        unknown = [n for n in grid.get_node_ids() if self.roster.key(n) not in known]
        self._ask(unknown, grid, ConfigRecord({ROUND: server_round, WANTS: HISTOGRAM}))

    def _fetch(self, server_round: int, grid: Grid) -> None:
        """Ask candidates for the supports that they have only signed so far."""
        nodes = {self.roster.key(node): node for node in grid.get_node_ids()}
        keys = [key for key in self.similarity.told if key in nodes]
        if len(keys) < 2:
            return
        missing = [nodes[key] for key in self.similarity.missing(keys)]
        self._ask(missing, grid, ConfigRecord({ROUND: server_round}))
        account = self.similarity.account(keys)
        if account:
            self.journal("supports", round=server_round, **account)

    def _ask(self, nodes: list[int], grid: Grid, asked: ConfigRecord) -> None:
        if not nodes:
            return
        content, kind = RecordDict({CONFIG: asked}), self.similarity.question
        questions = [Message(content, dst_node_id=node, message_type=kind) for node in nodes]
        for reply in grid.send_and_receive(questions, timeout=self.timeout):
            if not reply.has_error():
                self._hear(reply, ArrayRecord())

    def _hear(self, reply: Message, sent: ArrayRecord) -> None:
        key = self.roster.key(reply.metadata.src_node_id)
        try:
            self.similarity.hear(key, reply, sent)
        except ValueError as error:
            _log.warning("client %s: cannot be compared: %s", key, error)

    def _link(self) -> None:
        """Find the neighbours of every client that has trained and told."""
        keys = [key for key in self.models if key in self.similarity.told]
        self._weights = {}
        if len(keys) < 2:
            return
        self._matrix = self.similarity.matrix(keys)
        matrix = np.clip(self._matrix, 0.0, None)
        np.fill_diagonal(matrix, matrix.max())  # nobody is closer to a client than itself
        for row, key in enumerate(keys):
            nearest = np.argsort(-matrix[row], kind="stable")[: self.count + 1]
            self._weights[key] = {keys[i]: float(matrix[row, i]) for i in nearest}

    def _personal(self, message: Message) -> Message:
        weights = self._weights.get(self.roster.key(message.metadata.dst_node_id))
        if not weights:
            return message
        mean = RunningMean()
        for key, weight in weights.items():
            mean.add(self.models[key], {}, weight=max(weight, 1e-12))
        attach(message, ARRAYS, to_record(mean.arrays))
        return message

    def collected(self) -> dict[str, Any]:
        """Return what clients have sent that a run may keep for analysis."""
        return self.similarity.collected()

    def own_state(self) -> dict[str, Any]:
        """Return every client's model and what it told."""
        return {"models": self.models, "similarity": self.similarity.state_dict()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.models = dict(state["models"])
        self.similarity.load_state_dict(state["similarity"])
