"""A client's half of the methods as a Flower mod, around the train function of another app.

``app = ClientApp(mods=[forager.client_mod(model=Net, data=load_data)])`` answers what the server
asks (who the client is, similarity, losses, supports) and adds to training replies what the methods
need. What only the app can know comes by hooks. Without any, the client still says who it is, keeps
its affinity to cohorts, and lets the similarity of its update ride on its replies.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from ..core.wire import sparse
from ..core.wire.arrays import flat_change, from_record
from ..core.wire.keys import (
    AFFINITY,
    ANSWERS,
    ARRAYS,
    ASK_LOSSES,
    ASK_SUPPORT,
    ASK_UPDATE,
    BUDGET,
    CLIENT,
    CLIENT_KEY,
    CONFIG,
    CORESET,
    IDENTIFY,
    KIND,
    LOSS,
    QUESTION,
    REFERENCE,
    ROUND,
    RUN,
    SECONDS,
    SIMILARITY,
    SUMMARY,
    TARGETS,
    WANTS,
)
from ..core.wire.records import attach, detach, entries, record_at, records_of
from ..selectors.cohorts.affinity import Affinity, Feedback
from ..selectors.cohorts.tree import CohortTree
from ..selectors.similarities.power_norm import Reference
from .device.state import ClientState
from .identity import client_key, introduction

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable
    from torch import nn

    from .own_app import Hooks

_log = logging.getLogger("forager")
_INDICES, _USED = "indices", "used"  # of the record that gives a train function its coreset
_NEED_HOOKS = (SIMILARITY, LOSS, ASK_LOSSES, ASK_SUPPORT, CORESET)
_ALWAYS = (ASK_UPDATE,)

Data = TypeVar("Data")


class ClientMod:
    """The mod; see :func:`client_mod`, which makes it."""

    def __init__(self, **hooks: Any) -> None:
        self._given = hooks
        self._complete = hooks["model"] is not None and hooks["data"] is not None

    @cached_property
    def hooks(self) -> "Hooks":
        """What the app provides, made when a message needs it: torch takes a while to import."""
        from .own_app import Hooks

        if not self._complete:
            raise ValueError("this needs forager.client_mod(model=..., data=...), both of them")
        return Hooks(**self._given)

    def __call__(
        self, message: Message, context: Context, call_next: "ClientAppCallable"
    ) -> Message:
        """Answer a question, or add to what the app answers."""
        asked = record_at(message.content, QUESTION, ConfigRecord)
        kind = str(asked[KIND]) if asked is not None else message.metadata.message_type
        if kind == "train":
            return self._train(message, context, call_next)
        if kind == "evaluate":
            return _signed(call_next(message, context), context)
        answer = self._answer(kind, message, context, call_next)
        return _signed(Message(answer, reply_to=message), context)

    def _answer(
        self, kind: str, message: Message, context: Context, call_next: "ClientAppCallable"
    ) -> RecordDict:
        if kind == IDENTIFY:
            answers = [*_ALWAYS, *(_NEED_HOOKS if self._complete else ())]
            said = {**introduction(context), ANSWERS: answers}
            return RecordDict({CLIENT: ConfigRecord(said)})
        if kind == ASK_UPDATE:
            detach(message, QUESTION, ConfigRecord)
            reply = call_next(message, context)
            return reply.content
        from . import own_app

        if kind == SUMMARY:
            return own_app.summary(self.hooks, message, context)
        if kind == ASK_LOSSES:
            return own_app.losses(self.hooks, message, context)
        if kind == ASK_SUPPORT:
            return own_app.support(self.hooks, message, context)
        raise ValueError(f"unknown question for this version: {kind}")

    def _train(self, message: Message, context: Context, call_next: "ClientAppCallable") -> Message:
        started = perf_counter()
        told = _config(message)
        state = ClientState(
            context,
            str(told.get(RUN) or context.run_id),
            int(told[ROUND]) if ROUND in told else None,
            training=True,
        )
        added: dict[str, ConfigRecord] = {}
        affinity = self._affinity(detach(message, AFFINITY, ConfigRecord), state)
        if affinity is not None:
            added[AFFINITY] = affinity
        targets = detach(message, TARGETS, ArrayRecord)
        chosen = self._choose(message, context, state, targets) if BUDGET in told else None
        before = from_record(_model(message)) if told.get(WANTS) == SIMILARITY else None

        reply = call_next(message, context)
        if reply.has_error():
            return reply
        if chosen is not None:
            added[CORESET] = _told_of(chosen, message, self.hooks.size(context))
        if before is not None and REFERENCE in told:
            _add_metric(reply, SIMILARITY, self._similarity(told[REFERENCE], before, reply))
        _add_metric(reply, SECONDS, perf_counter() - started)
        for name, record in added.items():
            attach(reply, name, record)
        state.save()
        return _signed(reply, context)

    def _affinity(self, record: ConfigRecord | None, state: ClientState) -> ConfigRecord | None:
        """Learn from the feedback on cohorts, and return what the client sends as its request."""
        if record is None:
            return None
        told: dict[str, Any] = dict(entries(record))
        affinity = Affinity()
        if AFFINITY in state:
            affinity.load_state_dict(state[AFFINITY])
        feedback = None
        if "serial" in told:
            feedback = Feedback(told["cohort"], told["reward"], told["index"], told["serial"])
        rate = float(self._given["reward_rate"])
        affinity.learn(feedback, CohortTree.of_leaves(told["leaves"]), rate)
        state[AFFINITY] = affinity.state_dict()
        return ConfigRecord(state[AFFINITY])

    def _choose(
        self, message: Message, context: Context, state: ClientState, targets: ArrayRecord | None
    ) -> dict[str, Any] | None:
        """Find the coreset of this round and put it where the train function asks for it."""
        from .own_app import choose

        if not self._complete:
            return None
        started, told = perf_counter(), _config(message)
        means = None if targets is None else from_record(targets)["means"]
        chosen = choose(
            self.hooks,
            context,
            state,
            from_record(_model(message)),
            means,
            budget=float(told[BUDGET]),
            server_round=int(told[ROUND]),
        )
        chosen["seconds"] = perf_counter() - started
        record = ConfigRecord({_INDICES: [int(i) for i in chosen["indices"]], _USED: False})
        attach(message, CORESET, record)
        return chosen

    def _similarity(self, reference: Any, before: dict[str, Any], reply: Message) -> float:
        change = flat_change(before, from_record(_model(reply)))
        update = sparse.decode(reference, size=change.size)
        return float(Reference(update, self._given["power"]).similarity(change))


def client_mod(
    model: "nn.Module | Callable[[], nn.Module] | None" = None,
    data: Callable[[Context], Any] | None = None,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    learning_rate: float = 0.1,
    batch_size: int = 32,
    batches: int = 4,
    power: float = 4.0,
    support_share: float = 0.1,
    reward_rate: float = 0.2,
    seed: int = 0,
) -> ClientMod:
    """Return the mod for ``ClientApp(mods=[...])``.

    Parameters
    ----------
    model : Module or callable
        The model, or what makes one; its ``state_dict`` has the names of the arrays that travel.
        Without it and ``data``, questions about the client's data stay unanswered, and the server
        goes by what needs no question.
    data : callable
        Takes the context and returns the client's training data: a pair of inputs and labels, or a
        data set or data loader whose items are such pairs. Always in the same order.
    loss : callable, optional
        Takes outputs and labels; returns each sample's loss, or their mean. Cross-entropy by
        default.
    learning_rate, batch_size, batches : float, int, int
        Of the few mini-batches of SGD that a similarity is computed from. Take those of your own
        training.
    power : float (default: 4.0)
        The p of the norm that updates are compared in.
    support_share : float (default: 0.1)
        Share of the parameters that a support names.
    reward_rate : float (default: 0.2)
        Weight of a new reward against earlier ones; the same as the server's.
    seed : int (default: 0)
        Of the mini-batches.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[client_mod()])
    """
    if (model is None) != (data is None):
        raise ValueError("client_mod: model and data belong together; give both or neither")
    return ClientMod(
        model=model,
        data=data,
        loss=loss,
        learning_rate=learning_rate,
        batch_size=batch_size,
        batches=batches,
        power=power,
        support_share=support_share,
        reward_rate=reward_rate,
        seed=seed,
    )


def coreset(message: Message, data: Data) -> Data:
    """Return what to train on: the coreset of the client's data, or all where none is wanted.

    For your train function, between loading the data and training on them.

    Parameters
    ----------
    message : Message
        The training message.
    data : pair of arrays or tensors, data set, or data loader
        The data that the ``data`` hook returns, in the same order.
    """
    record = record_at(message.content, CORESET, ConfigRecord)
    if record is None:
        return data
    from .own_app import subset

    record[_USED] = True
    positions: Any = record[_INDICES]
    chosen: Data = subset(data, positions)
    return chosen


def _config(message: Message) -> dict[str, Any]:
    record = record_at(message.content, CONFIG, ConfigRecord)
    return {} if record is None else entries(record)


def _model(message: Message) -> ArrayRecord:
    record = record_at(message.content, ARRAYS, ArrayRecord)
    if record is None:
        found = len(records_of(message.content, ArrayRecord))
        raise ValueError(f"expected the model as the record {ARRAYS!r}; {found} other records")
    return record


def _told_of(chosen: dict[str, Any], message: Message, everything: int) -> ConfigRecord:
    """Return what is reported to the server about the coreset that was trained on."""
    record = record_at(message.content, CORESET, ConfigRecord)
    if record is None or not record[_USED]:
        _log.warning(
            "the server wants coresets, but the train function did not call "
            "forager.coreset(message, data): it trained on all its data"
        )
        return ConfigRecord({"round": 0, "size": everything, "seconds": chosen["seconds"]})
    size = len(chosen["indices"])
    return ConfigRecord({"round": chosen["round"], "size": size, "seconds": chosen["seconds"]})


def _add_metric(reply: Message, name: str, value: float) -> None:
    records = records_of(reply.content, MetricRecord)
    if len(records) == 1 and name not in records[0]:
        records[0][name] = value


def _signed(reply: Message, context: Context) -> Message:
    """Say in a reply who sent it."""
    if not reply.has_error() and CLIENT not in reply.content:
        attach(reply, CLIENT, ConfigRecord({CLIENT_KEY: client_key(context)}))
    return reply
