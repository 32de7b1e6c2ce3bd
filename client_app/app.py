"""The ClientApp: one handler per kind of message, on a batch of clients (one on a device)."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from time import perf_counter

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from ..core.wire.delivery import Delivery
from ..core.wire.keys import (
    ASK_AFFINITY,
    ASK_LOSSES,
    ASK_MOMENTS,
    ASK_SUPPORT,
    ASK_UPDATE,
    IDENTIFY,
    INGEST,
    SUMMARY,
)
from ..core.wire.requests import Requests
from ..core.wire.salt import is_salted, salted, unsalted
from .batch import ClientBatch
from .clients import is_simulated
from .device.device_log import describe, write
from .device.file_lock import StateInUseError
from .device.state import hold_files
from .discretion import check_batch, reason_of, says_texts

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
