"""Requests of one kind to the clients of one process, and what becomes of them, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from flwr.app import ArrayRecord, ConfigRecord, Context
from numpy.typing import NDArray

from ..core.tasks.errors import SayableError
from ..core.wire.arrays import from_record
from ..core.wire.keys import ARRAYS, CONFIG, NUM_EXAMPLES, ROUND, RUN, SCALE
from ..core.wire.records import entries
from ..core.wire.replies import Replies
from ..core.wire.requests import Requests
from .clients import VirtualClients, client_keys, is_simulated
from .device.file_lock import FileClaim
from .device.state import ClientState, state_path

if TYPE_CHECKING:  # a client that only says who it is does without torch
    from ..core.config import RunConfig
    from ..core.learning.job import Job
    from ..core.tasks import ClientData, Samples
    from .device.held_models import HeldModel
    from .device.sample_store import SampleStore
    from .side import ClientSide

Arrays = dict[str, NDArray[Any]]

# Rows that have claimed a client's files, by the file that stands for these. A process answers one
# message of a client after the other: one that was not closed is over.
_open_rows: WeakValueDictionary[Path, ClientRow] = WeakValueDictionary()


class ClientBatch:
    """Messages being answered, one row a client; only :meth:`close` changes what clients keep."""

    def __init__(
        self,
        requests: Requests,
        contexts: Sequence[Context],
        side: ClientSide | None = None,
        kind: str = "",
    ) -> None:
        self.requests, self.contexts, self.kind = requests, contexts, kind or requests.kind
        if side is not None:
            self.side = side
        # Of each sample in the loss, and of each client in aggregation; None for all alike
        self.weights: list[NDArray[Any] | None] = [None] * len(requests)
        self.counts_for: list[float | None] = [None] * len(requests)
        self.steps: list[int] = [0] * len(requests)  # mini-batches; 0 for the usual ones
        self.carried: dict[str, list[Arrays | None]] = {}  # what the objective needs, by name
        self.metrics: dict[str, list[Any]] = {}  # these three are the columns of the replies
        self.stacks: dict[str, Arrays] = {}
        self.records: dict[str, list[Any]] = {}
        self.sends_update = False  # whether a hook has put updates there, in place of models
        self.squares: NDArray[Any] | None = None  # squared gradients, where a hook wanted them
        self.supports: list[NDArray[Any]] | None = None  # once a hook has found them
        self.memo: dict[Any, Any] = {}  # what a hook wants to find again after the training
        self.held: Sequence[HeldModel] = ()  # the models, where messages name them
        self._rows: list[ClientRow] = []
        self._parts: list[ClientBatch] = []
        self._made: dict[int, Arrays] = {}  # of records, by their identity

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def side(self) -> ClientSide:
        """The model, data, loss and settings."""
        from .side import side_of

        return side_of(self.contexts[0], self.told.get(SCALE))

    @property
    def config(self) -> RunConfig:
        """The run config."""
        return self.side.config

    @cached_property
    def keys(self) -> list[str]:
        """The stable names of the clients."""
        return client_keys(self.contexts)

    @cached_property
    def told(self) -> dict[str, Any]:
        """The settings that came, as the first client was sent them."""
        return self.requests.config

    @cached_property
    def round(self) -> int:
        """The server's round."""
        if ROUND not in self.told:
            raise SayableError(f"a {self.kind} message needs a config record with the round")
        return int(self.told[ROUND])

    @property
    def trains(self) -> bool:
        """Whether this is a round's training, not only a question about it."""
        return self.kind == "train"

    @cached_property
    def models(self) -> Sequence[Arrays]:
        """The model of each client; one and the same dict where they were sent the same."""
        return self.arrays(ARRAYS)

    def arrays(self, name: str) -> list[Arrays]:
        """Return the arrays of a record in all rows; an error if a row has none."""
        return [self._read(name, record) for record in self.requests.column(name)]

    def _read(self, name: str, record: Any) -> Arrays:
        """Return the arrays of a record, the same ones for all that were sent it."""
        if id(record) not in self._made:
            if type(record) is not ArrayRecord:
                raise SayableError(f"a {self.kind} message needs an array record {name!r}")
            self._made[id(record)] = from_record(record)
        return self._made[id(record)]

    @cached_property
    def holdings(self) -> list[ClientData]:
        """All that each client holds."""
        return self.side.holdings(self.contexts)

    @cached_property
    def data(self) -> list[Samples]:
        """What each client trains on: all that it holds, unless a hook chooses."""
        data = [held.train for held in self.holdings]
        if not all(map(len, data)):
            raise SayableError("this client has no training data")
        return data

    @property
    def seeds(self) -> list[int]:
        """What decides the mini-batches of each client."""
        from ..core.learning.job import batch_seed

        seed, server_round = self.config.seed, self.round
        return [batch_seed(seed, key, server_round) for key in self.keys]

    def jobs(self) -> list[Job]:
        """Return the local work of each client."""
        from ..core.learning.job import Job

        carried = [
            {name: own for name, column in self.carried.items() if (own := column[i]) is not None}
            for i in range(len(self))
        ]
        columns = (self.models, self.data, self.seeds, self.weights, carried, self.steps)
        return [Job(*own) for own in zip(*columns, strict=True)]

    def prepare(self, *, only: str = "") -> ClientBatch:
        """Let each hook decide what clients train on; or only those that have a trait."""
        for hook in self.side.hooks:
            if not only or getattr(hook, only):
                hook.before(self)
        return self

    @property
    def rows(self) -> list[ClientRow]:
        """The clients one by one."""
        if not self._rows:
            self._rows = [ClientRow(self, place) for place in range(len(self))]
        return self._rows

    def put(self, name: str, place: int, record: ArrayRecord | ConfigRecord) -> None:
        """Add a record to the reply of one row."""
        self.records.setdefault(name, [None] * len(self))[place] = record

    def select(self, rows: Sequence[int]) -> ClientBatch:
        """Return a batch of some of the rows, which is abandoned with this one."""
        whole = self.contexts
        some = whole.select(rows) if isinstance(whole, VirtualClients) else [whole[i] for i in rows]
        part = ClientBatch(self.requests.select(rows), some, self.__dict__.get("side"), self.kind)
        self._parts.append(part)
        return part

    def replies(self, metrics: Mapping[str, list[Any]] | None = None, note: str = "") -> Replies:
        """Return what clients answer."""
        sent = self.requests
        ids = sent.ids or [sent.message.metadata.message_id] * len(self)
        found = self.metrics | dict(metrics or {})
        found.setdefault(NUM_EXAMPLES, [1] * len(self))
        return Replies(
            sent.nodes,
            ids,
            self.keys,
            found,
            self.stacks,
            self.records,
            nonces=sent.nonces,
            note=note,
            envelope=sent.message,
        )

    def close(self) -> None:
        """Keep what hooks have changed in the clients' states and among their samples."""
        for row in self._rows:
            row.close()

    def abandon(self) -> None:
        """Release the clients' files without changing them further."""
        for part in self._parts:
            part.abandon()
        for row in self._rows:
            row.abandon()


class ClientRow:
    """One client of a batch, for what is naturally done client by client."""

    def __init__(self, batch: ClientBatch, place: int) -> None:
        self.batch, self.place, self.key = batch, place, batch.keys[place]
        self._store: SampleStore | None = None
        self._claim: FileClaim | None = None
        self._closed = self._abandoned = False

    @property
    def side(self) -> ClientSide:
        """The model, data, loss and settings."""
        return self.batch.side

    @property
    def config(self) -> RunConfig:
        """The run config."""
        return self.batch.config

    @property
    def round(self) -> int:
        """The server's round."""
        return self.batch.round

    @cached_property
    def context(self) -> Context:
        """Flower's context of the client."""
        return self.batch.contexts[self.place]

    @property
    def simulated(self) -> bool:
        """Whether the data are the experimenter's own, as they are not on a device."""
        return is_simulated(self.context)

    @property
    def model(self) -> Arrays:
        """The model that came with the message."""
        return self.batch.models[self.place]

    @property
    def data(self) -> Samples:
        """What to train on."""
        return self.batch.data[self.place]

    def train_on(self, data: Samples, weights: NDArray[Any] | None = None) -> None:
        """Put samples in place of those that the client would train on, equal or weighted."""
        self.batch.data[self.place], self.batch.weights[self.place] = data, weights

    def carry(self, name: str, arrays: Arrays) -> None:
        """Bring the objective arrays like the model's."""
        batch = self.batch
        batch.carried.setdefault(name, [None] * len(batch))[self.place] = arrays

    @property
    def holdings(self) -> ClientData:
        """All that the client holds, the truth about its labels included where it is known."""
        return self.batch.holdings[self.place]

    def sent(self, name: str) -> dict[str, Any] | None:
        """Return a record of plain values that came; None if none did."""
        record = self.batch.requests.record(name, self.place)
        return entries(record) if type(record) is ConfigRecord else None

    def arrays(self, name: str) -> Arrays | None:
        """Return the arrays of a record that came; None if none did."""
        record = self.batch.requests.record(name, self.place)
        return None if record is None else self.batch._read(name, record)

    def reply(self, name: str, record: ArrayRecord | ConfigRecord) -> None:
        """Add a record to the reply."""
        self.batch.put(name, self.place, record)

    @cached_property
    def state(self) -> ClientState:
        """What the client keeps of this run and model, as it was before this message."""
        self._claim_files()
        told = self.sent(CONFIG) or {}
        run = told.get(RUN) or self.context.run_id
        return ClientState(
            self.context,
            self.side.state_name(str(run)),
            int(told[ROUND]) if ROUND in told else None,
            training=self.batch.trains,
        )

    def open_store(
        self, open_it: Callable[[], SampleStore], save: Callable[[], None]
    ) -> SampleStore:
        """Open the device's samples; when the row is closed they are saved, and committed."""
        self._claim_files()
        self._store, self._save = open_it(), save
        return self._store

    def close(self) -> None:
        """Keep what hooks have changed in the state and among the samples; once."""
        if self._closed:
            return
        if self._abandoned:
            raise RuntimeError(f"client {self.key!r}: another message came before this was done")
        try:
            # In this order: stored samples are of use even if the message fails after all.
            if self._store is not None:
                self._save()
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
        """Keep other processes away from the client's files until the message is answered."""
        files = state_path(self.context)
        if files is None or self._claim is not None:
            return
        path = files.with_suffix(".lock")
        earlier = _open_rows.get(path)
        if earlier is not None:
            earlier.abandon()
        self._claim = FileClaim(path, self.key)
        _open_rows[path] = self
