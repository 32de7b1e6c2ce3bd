"""Set bad replies aside so that the round continues with the rest."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.wire.arrays import checked_view, from_record
from ...core.wire.broadcast import Broadcast, ReplyStack, whole_or_list
from ...core.wire.keys import ARRAYS, NUM_EXAMPLES
from ...core.wire.records import contents, entries, node_of, records_of, sender_of, sent_arrays
from ..federation.federation import BadReply
from ..federation.late_reply import LateReply
from ..federation.observations import metrics_in
from ..federation.plausibility import UsualSize
from .base import Layer

_FIRST = 5  # replies that say what is usual before any was accepted
_ABSURD = 1e12  # samples of one client: sums of such counts still are numbers


class SentModel:
    """The model that clients were sent, ready to compare replies with."""

    def __init__(self, record: ArrayRecord) -> None:
        self.arrays = from_record(record)
        # Half precision overflows at 65,504; in single precision only absurd values do.
        self.wide = {name: _wide(a.dtype) for name, a in self.arrays.items() if a.dtype.kind == "f"}
        floats = [
            self.arrays[name].ravel().astype(wide, copy=False) for name, wide in self.wide.items()
        ]
        self.norm = math.sqrt(sum(float(np.vdot(a, a)) for a in floats))


class Quarantine(Layer):
    """Check every reply against what its client was sent.

    Set aside are: a reply nobody asked for, a second reply of one client, missing or surplus
    records, other array names, shapes or types than were sent, values that are not finite, no or
    negative example counts, and updates larger than ``norm_factor`` times the median of those
    accepted so far (of the model itself until there are any); likewise example counts above
    ``count_factor`` times the usual. Each is written to the journal and counted against its client.

    Parameters
    ----------
    inner : Strategy
        Gets the sound replies.
    norm_factor, count_factor : float
        How many times the usual size, or number of samples, is absurd.
    weight_factor : float (default: 0.0)
        A client counts for at most this many times the usual number of samples; 0 for no limit.
    min_replies : int (default: 1)
        With fewer sound replies nothing is aggregated.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        norm_factor: float = 100.0,
        count_factor: float = 100.0,
        weight_factor: float = 0.0,
        min_replies: int = 1,
    ) -> None:
        super().__init__(inner)
        self.weight_factor = weight_factor
        self.min_replies = min_replies
        self._norms = UsualSize(norm_factor)
        self._counts = UsualSize(count_factor)
        self._sent: dict[int, SentModel] = {}  # of those who have not answered yet

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Quarantine":
        """Return the layer that a config describes."""
        return cls(
            inner,
            norm_factor=config.quarantine.norm_factor,
            count_factor=config.quarantine.count_factor,
            weight_factor=config.quarantine.weight_factor,
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
        if isinstance(replies, ReplyStack) and replies.whole and self._accepted(replies):
            return super().aggregate_train(server_round, replies)
        replies, counts = self._with_first_counts(replies)
        usual, most = self._norms.median, counts.most(_ABSURD)
        heaviest = self.weight_factor * counts.median
        # Layers inside check the records that they asked for.
        expected, needed = self.reply_records(), self.metrics_needed()

        def read(reply: Message) -> None:
            sent = self._asked(reply)
            count = check_metrics(reply, needed, most)
            self._norms.append(self._check_size(sent, reply, usual, expected))
            self._counts.append(count)
            if 0 < heaviest < count:
                _weigh_less(reply, heaviest)

        sound = self._answered(self.federation.sound(server_round, replies, read))
        first = list(islice(sound, self.min_replies))
        if len(first) < self.min_replies:
            return None, None
        return super().aggregate_train(server_round, chain(first, sound))

    def hear_late(self, late: LateReply) -> None:
        """Check a late reply like any other; what is usual is learned from the others alone."""
        check_metrics(late.reply, self.metrics_needed(), self._counts.most(_ABSURD))
        sent, expected = SentModel(late.model), self.reply_records()
        self._check_size(sent, late.reply, self._norms.median, expected)
        super().hear_late(late)

    def _accepted(self, stack: ReplyStack) -> bool:
        """Accept all replies at once; False if one of them needs a closer look."""
        sent = self._sent.get(stack.nodes[0])
        asked = sent is not None and all(self._sent.get(node) is sent for node in stack.nodes)
        if not asked or self.metrics_needed() or len(stack) < self.min_replies:
            return False
        assert sent is not None
        counts, norms = np.array(stack.metrics[NUM_EXAMPLES]), update_norms(sent, stack)
        usual = self._usual_counts(stack.metrics[NUM_EXAMPLES][:_FIRST])
        most = min(usual.most(_ABSURD), self.weight_factor * usual.median or _ABSURD, _ABSURD)
        sound = (
            norms is not None
            and all(np.isfinite(values).all() for values in stack.metrics.values())
            and bool(((counts > 0) & (counts <= most)).all())
            and bool((norms <= self._limit(sent, self._norms.median)).all())
        )
        if not sound or norms is None:
            return False
        for node in stack.nodes:
            del self._sent[node]
        self._norms.extend(norms.tolist())
        self._counts.extend(counts.astype(np.float64).tolist())
        return True

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the sound replies."""

        def read(reply: Message) -> None:
            self._asked(reply)
            check_metrics(reply)

        sound = self._answered(self.federation.sound(server_round, replies, read))
        return super().aggregate_evaluate(server_round, sound)

    def _with_first_counts(self, replies: Iterable[Message]) -> tuple[Iterable[Message], UsualSize]:
        """Return the replies, and what numbers of samples are usual.

        Until some were accepted, the first replies of the round say so together: no single client
        can then claim to hold nearly all the data.
        """
        if len(self._counts):
            return replies, self._counts
        replies = iter(replies)
        first = list(islice(replies, _FIRST))
        claims = (metrics_in(reply).get(NUM_EXAMPLES) for reply in first if reply.has_content())
        return chain(first, replies), self._usual_counts(claims)

    def _usual_counts(self, first: Iterable[Any]) -> UsualSize:
        """Return what numbers of samples are usual, by the first claims if none was accepted."""
        if len(self._counts):
            return self._counts
        told = [float(c) for c in first if isinstance(c, int | float) and 0 < c <= _ABSURD]
        usual = UsualSize(self._counts.factor)
        if len(told) >= 3:  # of two, there is no way to know which one lies
            usual.extend(told)
        return usual

    @staticmethod
    def _answered(replies: Iterable[Message]) -> Iterator[Message]:
        return (reply for reply in replies if not reply.has_error())

    def _remember(self, messages: Iterable[Message]) -> Iterable[Message]:
        messages = whole_or_list(messages)
        models: dict[int, SentModel] = {}  # most messages carry the same record
        busy = self.federation.busy
        self._sent = {node: sent for node, sent in self._sent.items() if node in busy}
        if isinstance(messages, Broadcast):
            record = sent_arrays(messages.message, ARRAYS)
            self._sent |= dict.fromkeys(messages.nodes, SentModel(record))
            return messages
        for message in messages:
            record = sent_arrays(message, ARRAYS)
            if id(record) not in models:
                models[id(record)] = SentModel(record)
            self._sent[node_of(message)] = models[id(record)]
        return messages

    def _asked(self, reply: Message) -> SentModel:
        sent = self._sent.pop(sender_of(reply), None)
        if sent is None:
            raise BadReply("nobody asked for it, or it is a second reply")
        return sent

    def _check_size(
        self, sent: SentModel, reply: Message, usual: float, expected: Collection[str]
    ) -> float:
        norm, limit = update_norm(sent, reply, expected), self._limit(sent, usual)
        if norm > limit:
            raise BadReply(f"update of norm {norm:.3g}, more than {limit:.3g}")
        return norm

    def _limit(self, sent: SentModel, usual: float) -> float:
        """Return the norm from which on an update is absurd."""
        known = usual > 1e-9 * sent.norm
        return self._norms.factor * (usual if known else max(sent.norm, 1.0))

    def own_state(self) -> dict[str, Any]:
        """Return the usual norms and counts, and the strikes."""
        usual = {"norms": self._norms.state(), "counts": self._counts.state()}
        return usual | {"strikes": dict(self.federation.strikes)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self._norms.load(state["norms"])
        self._counts.load(state["counts"])
        self.federation.strikes = Counter(state["strikes"])


def check_metrics(reply: Message, needs: Sequence[str] = (), most: float = _ABSURD) -> float:
    """Return the example count of the one MetricRecord; :class:`BadReply` if that is not sound."""
    records = [r for r in contents(reply).values() if type(r) is MetricRecord]
    if len(records) != 1:
        raise BadReply(f"{len(records)} metric records instead of one")
    metrics = entries(records[0])
    examples = metrics.get(NUM_EXAMPLES)
    if not isinstance(examples, int | float) or not 0 < examples <= _ABSURD:
        raise BadReply(f"{NUM_EXAMPLES} = {examples!r} is not a positive number of samples")
    for name in needs:
        if not isinstance(metrics.get(name), int | float) or metrics[name] < 0:
            raise BadReply(f"{name} = {metrics.get(name)!r} is not a number of at least 0")
    isfinite = math.isfinite
    for name, value in metrics.items():
        if not (all(map(isfinite, value)) if isinstance(value, list) else isfinite(value)):
            raise BadReply(f"metric {name} is not finite")
    if examples > most:
        raise BadReply(f"{NUM_EXAMPLES} = {examples:.4g}, more than {most:.4g}")
    return float(examples)


def _weigh_less(reply: Message, count: float) -> None:
    """Let a reply count for no more than a number of samples."""
    record = records_of(reply.content, MetricRecord)[0]
    record[NUM_EXAMPLES] = count


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.promote_types(dtype, np.float32)


def update_norm(sent: SentModel, reply: Message, expected: Collection[str] = ()) -> float:
    """Return the norm of the update; :class:`BadReply` if it does not fit or is not finite.

    Records with expected names are not part of the update.
    """
    records = [
        record
        for name, record in contents(reply).items()
        if type(record) is ArrayRecord and name not in expected
    ]
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
        if name in sent.wide:
            difference = np.subtract(after, reference, dtype=sent.wide[name]).ravel()
            with np.errstate(over="ignore"):  # an infinite square is refused below
                squares += float(difference.dot(difference))
    if not math.isfinite(squares):
        raise BadReply("values that are not finite, or too large to square")
    return math.sqrt(squares)


def update_norms(sent: SentModel, replies: ReplyStack) -> NDArray[np.float64] | None:
    """Return the norm of each update; None if they do not fit the model.

    Of values that are not finite, the norm is not finite either.
    """
    if replies.arrays.keys() != sent.arrays.keys():
        return None
    squares = np.zeros(len(replies))
    for name, after in replies.arrays.items():
        reference = sent.arrays[name]
        if after.dtype != reference.dtype or after.shape[1:] != reference.shape:
            return None
        if name in sent.wide:
            with np.errstate(over="ignore", invalid="ignore"):
                difference = np.subtract(after, reference, dtype=sent.wide[name])
                rows = difference.reshape(len(after), -1)
                squares += np.vecdot(rows, rows)
    norms: NDArray[np.float64] = np.sqrt(squares)
    return norms
