"""The ClientApp: one handler per kind of message, nothing else.

Handlers work on many clients at once. On a device that is a list of one; the local engine passes
all clients of a round.
"""

import errno
import logging
from collections.abc import Callable, MutableSequence, Sequence
from functools import lru_cache, partial
from importlib import import_module
from time import perf_counter

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from ..core.tasks.errors import advice
from ..core.wire.keys import (
    ASK_LOSSES,
    ASK_MOMENTS,
    ASK_SUPPORT,
    ASK_UPDATE,
    IDENTIFY,
    INGEST,
    SUMMARY,
)
from .device.device_log import describe, write
from .scale import with_scale

_log = logging.getLogger("forager")
_RAISED = 2  # Flower's code for an exception in a ClientApp

Handler = Callable[[Sequence[Message], Sequence[Context]], MutableSequence[Message]]


def _at(place: str) -> Handler:
    """Return a handler that is imported when needed: on a device every message is a process."""

    def handle(
        messages: Sequence[Message], contexts: Sequence[Context]
    ) -> MutableSequence[Message]:
        module, name = place.split(":")
        handler: Handler = getattr(import_module(module), name)
        return handler(messages, contexts)

    return handle


HANDLERS: dict[str, Handler] = {
    "train": _at("forager.client_app.handlers.training:train_clients"),
    "evaluate": _at("forager.client_app.handlers.training:evaluate_clients"),
    IDENTIFY: _at("forager.client_app.identity:identify_clients"),
    SUMMARY: _at("forager.client_app.handlers.summaries:summarise_clients"),
    ASK_LOSSES: _at("forager.client_app.handlers.probes:answer_losses"),
    ASK_UPDATE: _at("forager.client_app.handlers.probes:answer_updates"),
    ASK_SUPPORT: _at("forager.client_app.hooks.supports:answer_supports"),
    INGEST: _at("forager.client_app.hooks.streams:ingest_clients"),
    ASK_MOMENTS: _at("forager.client_app.handlers.moments:answer_moments"),
}


def answer(
    kind: str, messages: Sequence[Message], contexts: Sequence[Context]
) -> MutableSequence[Message]:
    """Answer every message of one kind; a client that fails answers with an error.

    A handler that returned nothing would block its SuperNode forever. Where the work on several
    clients fails as a whole, they are tried one by one, so that only the faulty ones fail.
    """
    try:
        return HANDLERS[kind](messages, with_scale(messages, contexts))
    except Exception as error:
        if len(messages) > 1:
            return [
                reply
                for message, context in zip(messages, contexts, strict=True)
                for reply in answer(kind, [message], [context])
            ]
        reason = f"{type(error).__name__}: {error}{_advice(error)}"
        _warn_once(f"{kind} failed: {reason}")
        return [Message(Error(_RAISED, reason), reply_to=messages[0])]


def _advice(error: Exception) -> str:
    """Return what the owner of a device can do about an error, if that is known.

    >>> _advice(OSError(errno.ENOSPC, "No space left on device"))
    '; make room on the disk of this device (state-dir)'
    """
    if isinstance(error, ImportError) and advice(error):
        return f"; {advice(error)}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; make room on the disk of this device (state-dir)" if full else ""


@lru_cache(maxsize=100)
def _warn_once(text: str) -> None:
    """Log a fault, but not again for each of a thousand virtual clients that share it."""
    _log.warning(text)


def _answer_one(kind: str, message: Message, context: Context) -> Message:
    """Answer on a device, and log one line about it."""
    started = perf_counter()
    reply = _reply(kind, message, context)
    write(describe(kind, message, context, reply, perf_counter() - started))
    return reply


def _reply(kind: str, message: Message, context: Context) -> Message:
    """Answer by the device's resident worker, if it has one and torch is needed."""
    if kind != IDENTIFY and {"state-dir", "resident-seconds"} & context.node_config.keys():
        from .device import resident

        reply = resident.ask(kind, message, context) if resident.idle_seconds(context) else None
        if reply is not None:
            return reply
    return answer(kind, [message], [context])[0]


app = ClientApp()
for _kind in HANDLERS:
    _category, _, _action = _kind.partition(".")
    getattr(app, _category)(_action or "default")(partial(_answer_one, _kind))
