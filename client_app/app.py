"""The ClientApp: one handler per kind of message, on a batch of clients (one on a device).

Whatever the server asks, a client keeps to itself answers without noise, and error texts.
"""

from __future__ import annotations

import errno
import logging
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from ..core.tasks.errors import SayableError, advice
from ..core.wire.delivery import Delivery
from ..core.wire.flower_private import in_simulation
from ..core.wire.keys import (
    ASK_AFFINITY,
    ASK_LOSSES,
    ASK_MOMENTS,
    ASK_SUPPORT,
    ASK_UPDATE,
    CONFIG,
    IDENTIFY,
    INGEST,
    METRICS,
    NUM_EXAMPLES,
    ROUND,
    SUMMARY,
    TRAIN_LOSS,
)
from ..core.wire.requests import Requests
from ..core.wire.salt import is_salted, salted, unsalted
from .batch import ClientBatch
from .clients import client_key, is_simulated
from .device.file_lock import StateInUseError
from .device.state import hold_files

if TYPE_CHECKING:
    from ..core.config import RunConfig
    from .batch import ClientBatch

_OURS = str(Path(__file__).resolve().parents[1])
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def check_question(kind: str, config: RunConfig) -> None:
    """Refuse what would be answered without noise, where the run promises noise."""
    tested = kind == "evaluate" and config.fraction_evaluate > 0
    if config.privacy == "local-dp" and kind != "train" and not tested:
        raise SayableError(f"privacy = 'local-dp': {kind} would be answered without noise")


def check_batch(batch: ClientBatch) -> None:
    """Refuse questions of a batch; who a client is may always be asked."""
    if batch.kind != IDENTIFY:
        check_question(batch.kind, batch.config)


def reason_of(error: Exception, *, with_text: bool) -> str:
    """Return what the server is told of an error: its type and its place, and what to do.

    Its text may quote data, as "could not convert string ... to float" does. It is for the device's
    own log; the server gets it in simulation, or where the run's ``clients.error-texts`` says so.

    >>> reason_of(OSError(errno.ENOSPC, "No space left on device"), with_text=False)
    'OSError; make room on the disk of this device (state-dir)'
    """
    name = type(error).__name__
    if with_text or isinstance(error, SayableError):
        return f"{name}: {error}{_advice(error)}"
    return f"{name}{_place(error)}{_advice(error)}"


def says_texts(run_config: Mapping[str, Any]) -> bool:
    """Return whether the run asks for the texts of errors; never where it promises noise."""
    asked = bool(run_config.get("clients.error-texts", False))
    return asked and run_config.get("privacy", "none") != "local-dp"


def _place(error: Exception) -> str:
    """Return the innermost line of this app or the user's modules that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f for f in frames if f.filename.startswith(_OURS) or not f.filename.startswith(_INSTALLED)
    ]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" at {Path(frame.filename).name}:{frame.lineno} (the text is in the device's log)"


def _advice(error: Exception) -> str:
    """Return what the owner of a device can do about an error, if that is known."""
    if isinstance(error, ImportError) and advice(error):
        return f"; {advice(error)}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; make room on the disk of this device (state-dir)" if full else ""


_log = logging.getLogger("forager")
_RAISED = 2  # Flower's code for an exception in a ClientApp

Handler = Callable[[ClientBatch], Iterable[Message]]


def _at(place: str) -> Handler:
    """Return a handler that is imported when needed: on a device every message is a process."""

    def handle(batch: ClientBatch) -> Iterable[Message]:
        module, name = place.split(":")
        handler: Handler = getattr(import_module(f"forager.client_app.handlers.{module}"), name)
        return handler(batch)

    return handle


HANDLERS: dict[str, Handler] = {
    "train": _at("training:train_clients"),
    "evaluate": _at("evaluation:evaluate_clients"),
    IDENTIFY: _at("identity:identify_clients"),
    SUMMARY: _at("summaries:summarise_clients"),
    ASK_LOSSES: _at("questions:answer_losses"),
    ASK_UPDATE: _at("questions:answer_updates"),
    ASK_SUPPORT: _at("questions:answer_supports"),
    INGEST: _at("ingest:ingest_clients"),
    ASK_MOMENTS: _at("questions:answer_moments"),
    ASK_AFFINITY: _at("questions:answer_affinities"),
}


def answer(requests: Requests, contexts: Sequence[Context]) -> Delivery:
    """Answer messages of one kind; a client that fails answers with an error.

    A handler that returned nothing would block its SuperNode forever. Where the work on several
    clients fails as a whole, they are tried one by one, so that only the faulty ones fail.
    """
    batch = ClientBatch(requests, contexts)
    try:
        check_batch(batch)
        return Delivery.of(HANDLERS[requests.kind](batch))
    except Exception as error:
        if len(requests) == 1:
            return Delivery([], [failed(requests[0], contexts[0], error, requests.kind)])
        what = f"{requests.kind} failed for {len(requests)} clients together, each is tried alone"
        _warn_once(f"{what}: {reason_of(error, with_text=True)}")
    finally:
        batch.abandon()
    apart = [answer(requests.select([row]), [contexts[row]]) for row in range(len(requests))]
    return Delivery(
        [table for each in apart for table in each.tables],
        [error for each in apart for error in each.errors],
    )


def answer_one(message: Message, context: Context) -> Message:
    """Answer one message."""
    requests = Requests.of([message])
    assert requests is not None
    (reply,) = answer(requests, [context])
    return reply


def failed(message: Message, context: Context, error: Exception, kind: str) -> Message:
    """Return the reply of a client that failed; the text of the error goes to its own log."""
    told = is_simulated(context)
    if not told:
        _warn_once(f"{kind} failed: {reason_of(error, with_text=True)}")
        told = says_texts(context.run_config)
    return Message(Error(_RAISED, reason_of(error, with_text=told)), reply_to=message)


@lru_cache(maxsize=100)
def _warn_once(text: str) -> None:
    """Log a fault, but not again for each of a thousand virtual clients that share it."""
    _log.warning(text)


def _answer_one(kind: str, message: Message, context: Context) -> Message:
    """Answer on a device, and log one line about it."""
    started, by_salt = perf_counter(), is_salted(message)
    reply = _reply(kind, unsalted(message), context)
    write(describe(kind, message, context, reply, perf_counter() - started))
    return salted([reply])[0] if by_salt else reply


def _reply(kind: str, message: Message, context: Context) -> Message:
    """Answer by the device's resident worker, if it has one and torch is needed."""
    try:
        hold_files(context)
    except StateInUseError as error:
        return Message(Error(_RAISED, f"StateInUseError: {error}"), reply_to=message)
    if kind != IDENTIFY and {"state-dir", "resident-seconds"} & context.node_config.keys():
        from .device import resident

        reply = resident.ask(message, context) if resident.idle_seconds(context) else None
        if reply is not None:
            return reply
    return answer_one(message, context)


app = ClientApp()
for _kind in HANDLERS:
    _category, _, _action = _kind.partition(".")
    getattr(app, _category)(_action or "default")(partial(_answer_one, _kind))


def describe(kind: str, message: Message, context: Context, reply: Message, seconds: float) -> str:
    """Return the line: client, round, what was asked, samples, loss, seconds."""
    sent = message.content.config_records.get(CONFIG) if message.has_content() else None
    number = sent.get(ROUND) if sent else None
    parts = [f"{client_key(context) or 'client'}:"]
    parts += [f"round {number}:"] if isinstance(number, int) else []
    if reply.has_error():
        return " ".join([*parts, f"{kind} failed after {seconds:.1f} s: {reply.error.reason}"])
    metrics: Mapping[str, Any] = reply.content.metric_records.get(METRICS, {})
    counts = {NUM_EXAMPLES: "{:.0f} samples", TRAIN_LOSS: "loss {:.3f}", "accuracy": "{:.1%} right"}
    told = [text.format(metrics[name]) for name, text in counts.items() if name in metrics]
    return " ".join([*parts, ", ".join([kind, *told, f"{seconds:.1f} s"])])


def write(line: str) -> None:
    """Write it where the SuperNode shows it; a simulation has its own log."""
    if not in_simulation():
        print(line, file=sys.stderr, flush=True)
