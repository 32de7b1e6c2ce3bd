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

from ..core.wire.arrays import checked_view, from_record
from ..core.wire.keys import ARRAYS, NUM_EXAMPLES
from ..core.wire.records import entries, records_of, sent_arrays
from .layer import Layer, walk
from .roster import Roster

_HISTORY = 200  # accepted updates whose norms and counts say what is usual
_ABSURD = 1e12  # samples of one client: sums of such counts still are numbers


class BadReply(ValueError):
    """Why a reply is set aside."""


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
        roster: Roster,
        *,
        norm_factor: float = 100.0,
        count_factor: float = 100.0,
        min_replies: int = 1,
    ) -> None:
        super().__init__(inner)
        self.roster = roster
        self.min_replies = min_replies
        self.needs = [name for part in walk(inner) for name in getattr(part, "needs", ())]
        # Records that layers inside asked for; each of them checks its own.
        self.expected = frozenset(
            name for part in walk(inner) for name in getattr(part, "own_records", ())
        )
        self.norm_factor = norm_factor
        self.count_factor = count_factor
        self._norms: deque[float] = deque(maxlen=_HISTORY)
        self._counts: deque[float] = deque(maxlen=_HISTORY)
        self._sent: dict[int, SentModel] = {}

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
        sound = self._sound(server_round, replies, True)
        first = list(islice(sound, self.min_replies))
        if len(first) < self.min_replies:
            return None, None
        return super().aggregate_train(server_round, chain(first, sound))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the sound replies."""
        return super().aggregate_evaluate(server_round, self._sound(server_round, replies, False))

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

    def _sound(
        self, server_round: int, replies: Iterable[Message], training: bool
    ) -> Iterator[Message]:
        usual = float(np.median(self._norms)) if self._norms else 0.0
        most = self.count_factor * float(np.median(self._counts)) if self._counts else _ABSURD
        for reply in replies:
            if reply.has_error():  # counted as a failure where it arrived
                continue
            try:
                sent = self._sent.pop(reply.metadata.src_node_id, None)
                if sent is None:
                    raise BadReply("nobody asked for it, or it is a second reply")
                count = check_metrics(reply, self.needs if training else ())
                if training:
                    if count > most:
                        raise BadReply(f"{NUM_EXAMPLES} = {count:.4g}, more than {most:.4g}")
                    self._norms.append(self._check_size(sent, reply, usual))
                    self._counts.append(count)
            except BadReply as error:
                node = reply.metadata.src_node_id
                set_aside(self, self.roster, server_round, node, str(error))
            else:
                yield reply

    def _check_size(self, sent: SentModel, reply: Message, usual: float) -> float:
        norm = update_norm(sent, reply, self.expected)
        limit = self.norm_factor * (usual if usual > 1e-9 * sent.norm else max(sent.norm, 1.0))
        if norm > limit:
            raise BadReply(f"update of norm {norm:.3g}, more than {limit:.3g}")
        return norm

    def own_state(self) -> dict[str, Any]:
        """Return the usual norms and counts, and the strikes."""
        usual = {"norms": list(self._norms), "counts": list(self._counts)}
        return usual | {"strikes": dict(self.roster.strikes)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self._norms = deque(state["norms"], maxlen=_HISTORY)
        self._counts = deque(state["counts"], maxlen=_HISTORY)
        self.roster.strikes = Counter(state["strikes"])


def set_aside(layer: Layer, roster: Roster, server_round: int, node_id: int, reason: str) -> None:
    """Write down that a reply is not used, and count it against its client."""
    key = roster.key(node_id)
    roster.strikes[key] += 1
    layer.journal("quarantined", round=server_round, client=key, reason=reason)


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
