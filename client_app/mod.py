"""The client side of all methods as a Flower mod, around your own train function.

``app = ClientApp(mods=[forager.client_mod(model=Net, data=load_data)])`` answers the server's
questions and adds to training what the methods of the run need. Every message carries the methods
and their settings. Without a model and data, the client still identifies itself, keeps its affinity
to cohorts, sends top-k updates, and adds the similarity of its update to its replies.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message

from ..core.tasks.errors import SayableError
from ..core.wire.arrays import to_record
from ..core.wire.delivery import Delivery
from ..core.wire.keys import (
    ANSWERS,
    ARRAYS,
    ASK_AFFINITY,
    ASK_LOSSES,
    ASK_SUPPORT,
    ASK_UPDATE,
    CLIENT,
    CLIENT_KEY,
    CORESET,
    IDENTIFY,
    INGEST,
    KIND,
    LOSS,
    QUESTION,
    SETTINGS,
    SIMILARITY,
)
from ..core.wire.records import attach, detach, entries, filled
from ..core.wire.requests import Requests
from ..core.wire.salt import is_salted, salted, unsalted
from .app import HANDLERS, check_batch, check_question, failed
from .batch import ClientBatch
from .clients import client_key, is_simulated
from .device.state import hold_files
from .handlers.identity import introduction

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable
    from torch import nn

    from .own_app import OwnSide

_ALWAYS = (ASK_UPDATE, ASK_AFFINITY)
_WITH_DATA = (SIMILARITY, LOSS, ASK_LOSSES, ASK_SUPPORT, CORESET, INGEST)


class ClientMod:
    """The mod; see :func:`client_mod`, which makes it."""

    def __init__(self, model: Any, data: Any, loss: Any, trains: bool) -> None:
        self._model, self._data, self._loss, self._trains = model, data, loss, trains
        self._sides: dict[str, OwnSide] = {}  # by the settings that came
        self._problem: Any = None

    def __call__(
        self, message: Message, context: Context, call_next: "ClientAppCallable"
    ) -> Message:
        """Answer a question, or do around training what the methods need."""
        hold_files(context)
        by_salt = is_salted(message)
        asked = detach(unsalted(message), QUESTION, ConfigRecord)
        kind = str(asked[KIND]) if asked is not None else message.metadata.message_type
        try:
            reply = self._reply(kind, message, context, call_next)
            return salted([reply])[0] if by_salt else reply
        except Exception as error:
            if is_simulated(context):
                raise
            return failed(message, context, error, kind)

    def _reply(
        self, kind: str, message: Message, context: Context, call_next: "ClientAppCallable"
    ) -> Message:
        requests = Requests.of([message])
        assert requests is not None
        batch = ClientBatch(requests, [context], kind=kind)
        if kind in ("evaluate", ASK_UPDATE):
            if batch.told.get(SETTINGS):
                batch.side = self._side(str(batch.told[SETTINGS]))
                check_question(kind, batch.side.config)
                if kind == "evaluate" and ARRAYS in entries(message.content):
                    _make_own(batch, message)
            return _signed(call_next(message, context), context)
        if kind == IDENTIFY:
            answers = [*_ALWAYS, *(_WITH_DATA if self._model is not None else ())]
            said = {**introduction(context), ANSWERS: answers}
            batch.records[CLIENT] = [filled(ConfigRecord, said)]
            return batch.replies()[0]
        if kind not in HANDLERS:
            raise SayableError(f"unknown question for this version: {kind}")
        return self._answered(batch, call_next)

    def _answered(self, batch: ClientBatch, call_next: "ClientAppCallable") -> Message:
        """Answer by the same handlers and hooks as Forager's own app."""
        from .own_app import AppFailed

        side = batch.side = self._side(str(batch.told.get(SETTINGS, "")))
        check_batch(batch)
        side.context = context = batch.contexts[0]
        side.train_app = lambda message: call_next(message, context)
        try:
            (reply,) = Delivery.of(HANDLERS[batch.kind](batch))
        except AppFailed as failed:
            return failed.reply
        finally:
            batch.abandon()
        return reply

    def _side(self, settings: str) -> "OwnSide":
        """Return the side of a run, made when a message needs it: torch takes a while to import."""
        from ..core.tasks.own_app import AppProblem
        from .own_app import OwnSide

        if self._problem is None and self._model is not None:
            self._problem = AppProblem(self._model, loss=self._loss)
        if settings not in self._sides:
            side = OwnSide(settings, self._problem, self._data, self._trains)
            self._sides = {settings: side}
        return self._sides[settings]


def client_mod(
    model: "nn.Module | Callable[[], nn.Module] | None" = None,
    data: Callable[[Context], Any] | None = None,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    trains: bool = False,
) -> ClientMod:
    """Return the mod for ``ClientApp(mods=[...])``.

    Parameters
    ----------
    model : Module or callable
        The model, or a function that returns one; its ``state_dict`` has the names of the arrays
        in messages. Without it and ``data``, the client answers no question about its data, and
        the server chooses it by its age.
    data : callable
        Takes the context and returns the client's training data: a pair of inputs and labels, or a
        data set or data loader whose items are such pairs, always in the same order.
    loss : callable, optional
        Takes outputs and labels; returns one loss per sample, or their mean. Cross-entropy by
        default.
    trains : bool
        Whether Forager trains, with the settings of the run, instead of your train function.
        SCAFFOLD, MOON and other objectives need it.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[client_mod()])
    """
    if (model is None) != (data is None):
        raise ValueError("client_mod: model and data belong together; give both or neither")
    if trains and model is None:
        raise ValueError("client_mod: trains=True needs a model and data")
    return ClientMod(model, data, loss, trains)


def _signed(reply: Message, context: Context) -> Message:
    if not reply.has_error() and CLIENT not in reply.content:
        attach(reply, CLIENT, ConfigRecord({CLIENT_KEY: client_key(context)}))
    return reply


def _make_own(batch: ClientBatch, message: Message) -> None:
    """Put the client's own model in place of the one that came, if the run has such."""
    from .handlers.evaluation import own_models

    try:
        (own,) = own_models(batch)
        if own is not batch.models[0]:
            attach(message, ARRAYS, to_record(own))
    finally:
        batch.abandon()
