"""One message to one client: what it brought, what the client makes of it, what goes back.

A method that works on the client (a coreset, a stream, control variates, ...) is a
:class:`ClientHook`. It looks at a :class:`ClientRequest` before local training and may change what
is trained on, and again after it, when it may add records to the reply. Hooks know nothing of each
other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from numpy.typing import NDArray

from ..core.config import RunConfig
from ..core.learning.batches import batch_seed
from ..core.learning.job import Job, Outcome
from ..core.methods.base import load
from ..core.methods.catalogue import chosen
from ..core.tasks import ClientData, Samples, Task
from ..core.wire.arrays import from_record
from ..core.wire.keys import ARRAYS, CONFIG, ROUND, RUN
from ..core.wire.records import entries, record_at, sent_arrays
from .device.file_lock import Claim
from .device.sample_store import SampleStore
from .device.state import ClientState, state_path
from .identity import client_config, client_data, client_key
from .virtual_clients import VirtualClients

Arrays = dict[str, NDArray[Any]]

# Requests that have claimed a client's files, by the file that stands for these. A process answers
# one message of a client after the other: one that was not closed is over.
_open_requests: WeakValueDictionary[Path, "ClientRequest"] = WeakValueDictionary()


@dataclass
class ClientRequest:
    """What is known and decided while one message is answered.

    What the client keeps changes with :meth:`close`, or not at all: a request that fails, or that
    nobody closes, leaves the state and the stored samples as they were. In a ``with`` block it is
    closed at the end, and abandoned after an error.

    Parameters
    ----------
    message, context : Message, Context
        As Flower hands them over.
    task : Task
        The run's task.
    chosen : Samples, optional
        What to train on; all that the client holds unless a part chooses.
    weights : array, optional
        Weight of each sample in the loss; equal by default.
    counts_for : float, optional
        How much the client weighs in aggregation; its number of samples by default.
    carried : dict
        Arrays like the model's that the objective needs, by name.
    metrics : dict
        Metrics of the reply, once there has been training.
    reply : dict
        Records of the reply.
    sends_update : bool
        Whether a hook has put the update into the reply, so that the model need not be sent.
    support : array, optional
        Indices of the parameters that matter most to the client, once a part has found them.
    """

    message: Message
    context: Context
    task: Task
    chosen: Samples | None = None
    weights: NDArray[np.float32] | None = None
    counts_for: float | None = None
    carried: dict[str, Arrays] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    reply: dict[str, ArrayRecord | ConfigRecord] = field(default_factory=dict)
    sends_update: bool = False
    support: NDArray[np.int64] | None = None
    _store: SampleStore | None = field(default=None, init=False, repr=False)
    _claim: Claim | None = field(default=None, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)
    _abandoned: bool = field(default=False, init=False, repr=False)

    @cached_property
    def config(self) -> RunConfig:
        """The run config."""
        return client_config(self.context)

    @property
    def key(self) -> str:
        """The client's stable name."""
        return client_key(self.context)

    @property
    def data(self) -> Samples:
        """What to train on."""
        return training_data(self.context, self.task) if self.chosen is None else self.chosen

    @data.setter
    def data(self, chosen: Samples) -> None:
        self.chosen = chosen

    @property
    def holdings(self) -> ClientData:
        """All that the client holds, the truth about its labels included where it is known."""
        return client_data(self.context, self.task)

    @cached_property
    def round(self) -> int:
        """The server's round."""
        return round_of(self.message)

    @cached_property
    def arrays(self) -> Arrays:
        """The model that came with the message."""
        return from_record(sent_arrays(self.message, ARRAYS))

    @cached_property
    def state(self) -> ClientState:
        """What the client keeps of this run and model, as it was before this message."""
        self._claim_files()
        record = record_at(self.message.content, CONFIG, ConfigRecord)
        told = {} if record is None else entries(record)
        run, config = told.get(RUN) or self.context.run_id, self.config
        return ClientState(
            self.context,
            f"{run}: {config.task} {config.model} {config.net.hidden}",
            int(str(told[ROUND])) if ROUND in told else None,
            training=self.message.metadata.message_type == "train",
        )

    def open_store(self, open_it: Callable[[], SampleStore]) -> SampleStore:
        """Open the device's samples, which are committed when the request is closed."""
        self._claim_files()
        self._store = open_it()
        return self._store

    def job(self) -> Job:
        """Return the local work."""
        seed = batch_seed(self.config.seed, self.key, self.round)
        return Job(self.arrays, self.data, seed, self.weights, self.carried)

    def close(self) -> None:
        """Keep what parts have changed in the state and among the samples; once."""
        if self._closed:
            return
        if self._abandoned:
            raise RuntimeError(f"client {self.key!r}: another message came before this was done")
        try:
            # In this order: stored samples are of use even if the message fails after all.
            if self._store is not None:
                self._store.commit()
            if "state" in self.__dict__:
                self.state.save()
            self._closed = True
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the client's files without changing them further."""
        self._abandoned = not self._closed
        if self._claim is not None:
            self._claim.release()

    def _claim_files(self) -> None:
        """Keep other processes away from the client's files until the request is done."""
        files = state_path(self.context)
        if files is None or self._claim is not None:
            return
        path = files.with_suffix(".lock")
        earlier = _open_requests.get(path)
        if earlier is not None:
            earlier.abandon()
        self._claim = Claim(path, self.key)
        _open_requests[path] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class ClientHook:
    """One method's half on the client."""

    chooses_data = False  # whether it also acts where a client only gives a sample of its training
    holds_data = False  # whether what it chooses is all that the client holds

    def __init__(self, config: RunConfig) -> None:
        """Take settings from the run config."""

    def before(self, request: ClientRequest) -> None:
        """Look at what came; change data, weights or what the objective carries."""

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Look at what came of it; add records to the reply; return what to send."""
        return outcome


def client_requests(
    messages: Sequence[Message], contexts: Sequence[Context], task: Task
) -> list[ClientRequest]:
    """Return a request for each message."""
    return [
        ClientRequest(message, context, task)
        for message, context in zip(messages, contexts, strict=True)
    ]


def hooks_of(config: RunConfig) -> list[ClientHook]:
    """Return the parts that a run needs on its clients, in the order in which they act."""
    return [load(method.hook)(config) for method in chosen(config.axes()) if method.hook]


def training_data(context: Context, task: Task) -> Samples:
    """Return what a client holds to train on; an error if there is nothing."""
    data = client_data(context, task).train
    if not len(data):
        raise ValueError(f"client {client_key(context)!r} has no training data")
    return data


def all_training_data(contexts: Sequence[Context], task: Task) -> list[Samples]:
    """Return what several clients hold to train on; an error if one of them has nothing."""
    if not isinstance(contexts, VirtualClients):
        return [training_data(context, task) for context in contexts]
    numbers, total = contexts.numbers, contexts.total
    data = [held.train for held in task.all_client_data(numbers, total)]
    if not all(map(len, data)):
        empty = next(n for n, samples in zip(numbers, data, strict=True) if not len(samples))
        raise ValueError(f"client '{empty}' has no training data")
    return data


def round_of(message: Message) -> int:
    """Return the server's round that a message is of."""
    return int(str(message_config(message)[ROUND]))


def message_config(message: Message) -> ConfigRecord:
    """Return the config that a message carries."""
    record = record_at(message.content, CONFIG, ConfigRecord)
    if record is None:
        raise ValueError(f"a {message.metadata.message_type} message needs a config record")
    return record
