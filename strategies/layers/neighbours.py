"""One model per client, mixed from those of the clients most like it.

Personalised averaging over a similarity graph (IOS, section 5): client i starts its local training
from ``sum_j w_ij theta_j`` over itself and its k nearest neighbours, with weights in proportion to
their similarity; theta_j is the last model that client j trained. Memory is bounded: with large
models, clients that have not trained for long are dropped, and are no neighbours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.log.events import NeighboursFound
from ...core.methods.ios import Ios
from ...core.wire.arrays import to_record
from ...core.wire.keys import ARRAYS, CONFIG, HISTOGRAM, SUMMARY, SUPPORT, WANTS
from ...core.wire.replies import Replies, Row
from ...core.wire.requests import Requests
from ..aggregation.running_mean import RunningMean
from ..cohorts.base import ONLY
from ..similarities.client_similarity import ClientSimilarity, client_similarity, matrix_event
from .base import Layer, Outcome

Arrays = Mapping[str, NDArray[Any]]

MOST_BYTES = 256 * 2**20


class ModelMemory:
    """The last model of each client, as a rounded difference from the first one kept.

    Differences are small, so two bytes per number are enough: each array is scaled by its largest
    difference, and no number is off by more than a thousandth of that. When memory is full, the
    client that has not trained for longest is forgotten. One is always kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._first: dict[str, NDArray[Any]] = {}
        self._models: dict[str, dict[str, tuple[float, NDArray[Any]]]] = {}  # the newest last
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def keep(self, key: str, arrays: Arrays) -> None:
        """Remember what a client trained, in place of what it trained before."""
        if not self._first:
            self._first = {name: np.array(array) for name, array in arrays.items()}
        self._forget(key)
        self._models[key] = {name: self._packed(name, array) for name, array in arrays.items()}
        self.bytes += _size(self._models[key])
        while self.bytes > self.most_bytes and len(self._models) > 1:
            self._forget(next(iter(self._models)))

    def get(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return what a client trained last; nothing if it is not remembered."""
        if key not in self._models:
            return None
        return {name: self._unpacked(name, *kept) for name, kept in self._models[key].items()}

    def _forget(self, key: str) -> None:
        gone = self._models.pop(key, None)
        if gone is not None:
            self.bytes -= _size(gone)

    def _packed(self, name: str, array: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        if array.dtype.kind != "f":
            return 1.0, np.array(array)
        change = np.subtract(array, self._first[name], dtype=np.float32)
        largest = float(np.max(np.abs(change), initial=0.0))
        if not 0 < largest < np.inf:
            return 0.0, np.zeros(array.shape, dtype=np.float16)
        return largest, (change / np.float32(largest)).astype(np.float16)

    def _unpacked(self, name: str, scale: float, kept: NDArray[Any]) -> NDArray[Any]:
        first = self._first[name]
        if first.dtype.kind != "f":
            return kept
        restored: NDArray[Any] = first + np.float32(scale) * kept.astype(np.float32)
        return restored.astype(first.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the models as they are kept."""
        models = {
            key: {name: {"scale": scale, "kept": kept} for name, (scale, kept) in model.items()}
            for key, model in self._models.items()
        }
        return {"first": self._first, "models": models}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._first = dict(state["first"])
        self._models = {
            str(key): {n: (float(e["scale"]), e["kept"]) for n, e in model.items()}
            for key, model in state["models"].items()
        }
        self.bytes = sum(_size(model) for model in self._models.values())


def _size(model: Mapping[str, tuple[float, NDArray[Any]]]) -> int:
    return sum(kept.nbytes for _, kept in model.values())


class Neighbours(Layer):
    """Send every client the mixture of its neighbours' models."""

    own_records = (SUPPORT,)

    def __init__(
        self,
        inner: Strategy,
        similarity: ClientSimilarity,
        *,
        count: int = 8,
        first: int = 2,
        every: int = 5,
    ) -> None:
        super().__init__(inner)
        self.similarity = similarity
        self.count = count
        self.first, self.every = first, every
        self.trained = ModelMemory()  # what each client trained last
        self._news = False  # whether clients have said anything since they were compared
        self._weights: dict[str, dict[str, float]] = {}  # of this round's graph
        self._matrix: NDArray[np.float64] = np.empty((0, 0))  # of the clients in it

    @classmethod
    def of_run(cls, make_inner: Callable[[], Layer], config: RunConfig) -> "Neighbours":
        """Return the layer that a config describes."""
        ios = config[Ios]
        return cls(
            make_inner(),
            client_similarity(config),
            count=ios.neighbours,
            first=ios.first_round,
            every=ios.every,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients, then put each client's own mixture in place of the global model."""
        messages = super().configure_train(server_round, arrays, config, grid)
        if self.similarity.question == SUMMARY:
            self._ask_truth(server_round, grid)
        if self._due(server_round):
            self._fetch(server_round, grid)
        self._link()
        return self._personal(server_round, messages)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let each client evaluate its own mixture."""
        self._link()
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        return self._personal(server_round, messages)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Keep each client's model and similarity record; aggregate for newcomers."""
        result = super().aggregate_train(server_round, replies)
        graph = {key: sorted(weights) for key, weights in self._weights.items()}
        values = self.similarity.values
        self.federation.note(NeighboursFound(round=server_round, graph=graph, values=values))
        if graph and self._due(server_round):
            labels = dict.fromkeys(graph, ONLY)
            self.federation.note(matrix_event(server_round, list(graph), self._matrix, labels))
        return result

    def _due(self, server_round: int) -> bool:
        return server_round >= self.first and (server_round - self.first) % self.every == 0

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Keep each client's model, and what it reports."""
        trained = replies.arrays

        def keep(row: Row) -> None:
            key, sent = self.federation.key(row.node), self.federation.sent_model(row.node)
            self.similarity.hear(key, row, sent)
            self.trained.keep(key, {name: stack[row.place] for name, stack in trained.items()})
            self._news = True

        return self.federation.read_rows(server_round, replies, keep)

    def _ask_truth(self, server_round: int, grid: Grid) -> None:
        known, nodes = self.similarity.told, grid.get_node_ids()
        unknown = [n for n in nodes if self.federation.key(n) not in known]
        self._ask(server_round, unknown, grid, {WANTS: HISTOGRAM})

    def _fetch(self, server_round: int, grid: Grid) -> None:
        """Ask candidates for the supports that they have only signed so far."""
        nodes = {self.federation.key(node): node for node in grid.get_node_ids()}
        keys = [key for key in self.similarity.told if key in nodes]
        if len(keys) < 2:
            return
        missing = [nodes[key] for key in self.similarity.missing(keys)]
        self._ask(server_round, missing, grid, {})
        account = self.similarity.account(server_round, keys)
        if account is not None:
            self.federation.note(account)

    def _ask(
        self, server_round: int, nodes: list[int], grid: Grid, settings: dict[str, str]
    ) -> None:
        content, kind = {CONFIG: settings}, self.similarity.question
        answers = self.federation.ask(grid, server_round, kind, nodes, content)

        def hear(row: Row) -> None:
            self.similarity.hear(self.federation.key(row.node), row, ArrayRecord())
            self._news = True

        self.federation.readable(server_round, answers, hear)

    def _link(self) -> None:
        """Find the neighbours of every client that has trained and reported, if anything is new."""
        if not self._news:
            return
        self._news = False
        keys = [key for key in self.trained if key in self.similarity.told]
        self._weights = {}
        if len(keys) < 2:
            return
        self._matrix = self.similarity.matrix(keys)
        matrix = np.clip(self._matrix, 0.0, None)
        np.fill_diagonal(matrix, matrix.max())  # nobody is closer to a client than itself
        for row, key in enumerate(keys):
            nearest = np.argsort(-matrix[row], kind="stable")[: self.count + 1]
            self._weights[key] = {keys[i]: float(matrix[row, i]) for i in nearest}

    def _personal(self, server_round: int, messages: Iterable[Message]) -> Sequence[Message]:
        """Put each client's own mixture in place of the global model, where it has one."""
        requests = Requests.of(messages)
        if requests is None:
            return []
        for name, record in self.similarity.news().items():
            requests.put(name, record)
        for row, key in enumerate(self.federation.keys(requests.nodes)):
            mixture = self._mixture(key)
            if mixture is not None:
                requests.put(ARRAYS, mixture, [row])
        return self.federation.assign(server_round, requests)

    def _mixture(self, key: str) -> ArrayRecord | None:
        mean = RunningMean()
        for other, weight in self._weights.get(key, {}).items():
            trained = self.trained.get(other)
            if trained is not None:  # forgotten since the graph was made
                mean.add(trained, {}, weight=max(weight, 1e-12))
        return to_record(mean.arrays) if mean.weight else None

    def collected(self) -> dict[str, Any]:
        """Return data from clients that a run may keep for analysis."""
        return self.similarity.collected()

    def own_state(self) -> dict[str, Any]:
        """Return every client's model and what it reported."""
        return {"models": self.trained.state_dict(), "similarity": self.similarity.state_dict()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`own_state` returned."""
        self.trained.load_state_dict(state["models"])
        self._news = True
        self.similarity.load_state_dict(state["similarity"])
