"""What the server learns of a client from its replies, for rules that choose clients.

A rule names what it needs (``ClientSelector.needs``); each name has a reader here, which takes a
training reply and returns the value, None if the reply does not say, or raises
:class:`~strategies.federation.federation.BadReply`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord

from ...core.wire.changes import LACKS_BASE
from ...core.wire.keys import (
    HISTOGRAM,
    LOSS,
    NUM_EXAMPLES,
    SECONDS,
    SIGNATURE,
    SIMILARITY,
    SUPPORT,
    TRAIN_LOSS,
    UTILITY,
)
from ...core.wire.records import entries, record_at, records_of
from ...core.wire.signatures import decode_signature
from ...core.wire.supports import MalformedSupport
from .federation import BadReply

Reader = Callable[[Message], Any]

_ABSURD = 1e12  # samples of one label: sums of such counts still are numbers
# What clients can be asked before they are chosen; the rest is known from training replies only.
ASKED = (SIMILARITY, LOSS, HISTOGRAM)
# What an honest client can answer; the printed form of the similarity has no bound.
_RANGES = {SIMILARITY: (-1.0 - 1e-6, 1.0 + 1e-6), LOSS: (0.0, math.inf)}


def metrics_in(reply: Message) -> Mapping[str, Any]:
    """Return the metrics of a reply; none if it does not have exactly one record of them."""
    records = records_of(reply.content, MetricRecord)
    return entries(records[0]) if len(records) == 1 else {}


def lacks_model(reply: Message) -> bool:
    """Return whether a client answers that it does not hold the model that a message builds on."""
    return LACKS_BASE in metrics_in(reply)


def train_loss(reply: Message) -> float | None:
    """Return the mean loss of local training."""
    loss = metrics_in(reply).get(TRAIN_LOSS)
    return loss if isinstance(loss, float) else None


def utility(reply: Message) -> float:
    """Return Oort's statistical utility, |B| sqrt(mean loss^2), and take it out of a reply.

    A client that does not report it is worth nothing: if unknown, it would be explored forever.
    """
    value = metrics_in(reply).get(UTILITY, 0.0)
    if UTILITY in metrics_in(reply):
        del records_of(reply.content, MetricRecord)[0][UTILITY]
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadReply(f"{UTILITY} = {value!r} is not a finite number of 0 or more")
    return float(value)


def num_examples(reply: Message) -> float | None:
    """Return how many samples a client says it has trained on."""
    examples = metrics_in(reply).get(NUM_EXAMPLES)
    return float(examples) if isinstance(examples, int | float) else None


def seconds(reply: Message) -> float | None:
    """Return how long local training took."""
    value = metrics_in(reply).get(SECONDS)
    return value if isinstance(value, float) else None


def signature(hashes: int = 0) -> Reader:
    """Return a reader of the signature of a client's support, of this many hashes if that is known.

    It returns None if nothing matters to a client.
    """

    def read(reply: Message) -> list[int] | None:
        record = record_at(reply.content, SUPPORT, ConfigRecord)
        if record is None:
            return None
        payload = record.get(SIGNATURE)
        try:
            found = decode_signature(payload if isinstance(payload, bytes) else b"").signature
        except MalformedSupport as error:
            raise BadReply(f"no signature that can be compared: {error}") from error
        if hashes and len(found) != hashes:
            raise BadReply(f"a signature of {len(found)} hashes instead of {hashes}")
        return [int(value) for value in found]

    return read


def answered(wants: str, bounded: bool = True, labels: int = 0) -> Reader:
    """Return a reader of the answer to a question.

    ``bounded`` similarities lie in [-1, 1]; a histogram is of that many ``labels``, if they are
    known: else the first answer, right or wrong, would decide for all others.
    """

    def read(reply: Message) -> Any:
        value = metrics_in(reply).get(wants)
        if wants == HISTOGRAM:
            if not isinstance(value, list) or not all(0 <= v <= _ABSURD for v in value):
                raise BadReply(f"{wants} is not a list of counts")
            if labels and len(value) != labels:
                raise BadReply(f"{wants} of {len(value)} labels instead of {labels}")
            return value
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise BadReply(f"{wants} = {value!r} is not a finite number")
        low, high = _RANGES[wants]
        if (wants != SIMILARITY or bounded) and not low <= value <= high:
            raise BadReply(f"{wants} = {value!r} is not between {low:.3g} and {high:.3g}")
        return float(value)

    return read


def ridden_similarity(bounded: bool) -> Reader:
    """Return a reader of the similarity that rides on a training reply, and is taken out of it."""
    read = answered(SIMILARITY, bounded)

    def take(reply: Message) -> float | None:
        if SIMILARITY not in metrics_in(reply):
            return None
        try:
            return float(read(reply))
        finally:
            del records_of(reply.content, MetricRecord)[0][SIMILARITY]

    return take


def readers(needs: frozenset[str], bounded: bool = True, hashes: int = 0) -> dict[str, Reader]:
    """Return how each of these observations is read from a training reply, where it can be."""
    known: dict[str, Reader] = {
        LOSS: train_loss,
        UTILITY: utility,
        SECONDS: seconds,
        NUM_EXAMPLES: num_examples,
        SIGNATURE: signature(hashes),
        SIMILARITY: ridden_similarity(bounded),
    }
    return {name: known[name] for name in sorted(needs) if name in known}
