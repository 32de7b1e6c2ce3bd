"""Set bad replies aside so that the round goes on with the rest."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..core.config import RunConfig
from ..core.wire.arrays import checked_view, from_record
from ..core.wire.keys import ARRAYS, NUM_EXAMPLES
from ..core.wire.records import entries, records_of, sent_arrays
from .federation import BadReply
from .layer import Layer

_HISTORY = 200  # accepted updates whose norms and counts say what is usual
_ABSURD = 1e12  # samples of one client: sums of such counts still are numbers


class SentModel:
    """The model that clients were sent, ready to compare replies with."""

    def __init__(self, record: ArrayRecord) -> None:
        self.arrays = from_record(record)
        floats = [
            a.ravel().astype(_wide(a.dtype), copy=False)
            for a in self.arrays.values()
            if a.dtype.kind == "f"
        ]
        self.norm = math.sqrt(sum(float(np.vdot(a, a)) for a in floats))


class Quarantine(Layer):
    """Check every reply against what its client was sent.

    Set aside are: a reply nobody asked for, a second reply of one client, missing or surplus
    records, other array names, shapes or types than were sent, values that are not finite, no or
    negative example counts, and updates larger than ``norm_factor`` times the median of those
    accepted so far (of the model itself until there are any); likewise example counts above
    ``count_factor`` times the usual, once there is one. Each is written to the journal and counted
    against its client.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        norm_factor: float = 100.0,
        count_factor: float = 100.0,
        min_replies: int = 1,
    ) -> None:
        super().__init__(inner)
        self.norm_factor = norm_factor
        self.count_factor = count_factor
        self.min_replies = min_replies
        self._norms: deque[float] = deque(maxlen=_HISTORY)
        self._counts: deque[float] = deque(maxlen=_HISTORY)
        self._sent: dict[int, SentModel] = {}  # of those who have not answered yet

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Quarantine":
        """Return the layer that a config describes."""
        return cls(
            inner,
            norm_factor=config.quarantine.norm_factor,
            count_factor=config.quarantine.count_factor,
            min_replies=config.round.min_replies,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember what every client is sent."""
        return self._remember(super().configure_train(server_round, arrays, config, grid))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember who is asked."""
        return self._remember(super().configure_evaluate(server_round, arrays, config, grid))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the sound replies, if there are enough."""
        usual = float(np.median(self._norms)) if self._norms else 0.0
        most = self.count_factor * float(np.median(self._counts)) if self._counts else _ABSURD
        # Layers inside check the records that they asked for.
        expected, needed = self.reply_records(), self.metrics_needed()

        def read(reply: Message) -> None:
            sent = self._asked(reply)
            count = check_metrics(reply, needed)
            if count > most:
                raise BadReply(f"{NUM_EXAMPLES} = {count:.4g}, more than {most:.4g}")
            self._norms.append(self._check_size(sent, reply, usual, expected))
            self._counts.append(count)

        sound = self._answered(self.federation.sound(server_round, replies, read))
        first = list(islice(sound, self.min_replies))
        if len(first) < self.min_replies:
            return None, None
        return super().aggregate_train(server_round, chain(first, sound))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the sound replies."""

        def read(reply: Message) -> None:
            self._asked(reply)
            check_metrics(reply)

        sound = self._answered(self.federation.sound(server_round, replies, read))
        return super().aggregate_evaluate(server_round, sound)

    @staticmethod
    def _answered(replies: Iterable[Message]) -> Iterator[Message]:
        return (reply for reply in replies if not reply.has_error())

    def _remember(self, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        models: dict[int, SentModel] = {}  # most messages carry the same record
        self._sent = {}
        for message in messages:
            record = sent_arrays(message, ARRAYS)
            if id(record) not in models:
                models[id(record)] = SentModel(record)
            self._sent[message.metadata.dst_node_id] = models[id(record)]
        return messages

    def _asked(self, reply: Message) -> SentModel:
        sent = self._sent.pop(reply.metadata.src_node_id, None)
        if sent is None:
            raise BadReply("nobody asked for it, or it is a second reply")
        return sent

    def _check_size(
        self, sent: SentModel, reply: Message, usual: float, expected: Collection[str]
    ) -> float:
        norm = update_norm(sent, reply, expected)
        limit = self.norm_factor * (usual if usual > 1e-9 * sent.norm else max(sent.norm, 1.0))
        if norm > limit:
            raise BadReply(f"update of norm {norm:.3g}, more than {limit:.3g}")
        return norm

    def own_state(self) -> dict[str, Any]:
        """Return the usual norms and counts, and the strikes."""
        usual = {"norms": list(self._norms), "counts": list(self._counts)}
        return usual | {"strikes": dict(self.federation.strikes)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self._norms = deque(state["norms"], maxlen=_HISTORY)
        self._counts = deque(state["counts"], maxlen=_HISTORY)
        self.federation.strikes = Counter(state["strikes"])


def check_metrics(reply: Message, needs: Sequence[str] = ()) -> float:
    """Return the example count of the one MetricRecord; :class:`BadReply` if that is not sound."""
    records = records_of(reply.content, MetricRecord)
    if len(records) != 1:
        raise BadReply(f"{len(records)} metric records instead of one")
    metrics = entries(records[0])
    examples = metrics.get(NUM_EXAMPLES)
    if not isinstance(examples, int | float) or not 0 < examples <= _ABSURD:
        raise BadReply(f"{NUM_EXAMPLES} = {examples!r} is not a positive number of samples")
    for name in needs:
        if not isinstance(metrics.get(name), int | float) or metrics[name] < 0:
            raise BadReply(f"{name} = {metrics.get(name)!r} is not a number of at least 0")
    for name, value in metrics.items():
        finite = all(map(math.isfinite, value)) if isinstance(value, list) else math.isfinite(value)
        if not finite:
            raise BadReply(f"metric {name} is not finite")
    return float(examples)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.promote_types(dtype, np.float32)


def update_norm(sent: SentModel, reply: Message, expected: Collection[str] = ()) -> float:
    """Return the norm of the update; :class:`BadReply` if it does not fit or is not finite.

    Records with expected names are not part of the update.
    """
    own = {name: r for name, r in entries(reply.content).items() if name not in expected}
    records = [record for record in own.values() if type(record) is ArrayRecord]
    if len(records) != 1:
        raise BadReply(f"{len(records)} array records instead of one")
    arrays = entries(records[0])
    if arrays.keys() != sent.arrays.keys():
        odd = sorted(arrays.keys() ^ sent.arrays.keys())
        raise BadReply(f"other array names than the model's: {odd[:5]}")
    squares = 0.0
    for name, array in arrays.items():
        reference = sent.arrays[name]
        try:
            after = checked_view(array, reference)
        except ValueError as error:
            raise BadReply(f"array {name}: {error}") from error
        if after.dtype.kind == "f":
            # Half precision overflows at 65,504; in single precision only absurd values do.
            difference = np.subtract(after, reference, dtype=_wide(after.dtype)).ravel()
            squares += float(np.vdot(difference, difference))
    if not math.isfinite(squares):
        raise BadReply("values that are not finite, or too large to square")
    return math.sqrt(squares)
