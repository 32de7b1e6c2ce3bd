"""Clients that forget, or whose labels are wrong: what cohorts have to put up with.

Both change this process's clients while a ``with`` block lasts; runs of a sweep have a process to
themselves one after the other.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from flwr.app import Message

from ..client_app import app
from ..client_app.batch import ClientBatch
from ..client_app.device.state import ClientState
from ..core.tasks.splits import ClientData, Split
from ..core.tasks.task import Task

RECORDS = "affinity"  # the section of a client's state that it loses


@contextmanager
def forgetful_clients(share: float, seed: int, unstable: Collection[int] = ()) -> Iterator[None]:
    """Let clients lose their affinity records before that share of their trainings.

    Those that are unstable lose them before every one.
    """
    honest, rng = app.HANDLERS["train"], np.random.default_rng([seed, 13])

    def train(batch: ClientBatch) -> list[Message]:
        for context in batch.contexts:
            state = ClientState(context)
            always = int(str(context.node_config.get("partition-id", -1))) in unstable
            if (rng.random() < share or always) and state.pop(RECORDS, None) is not None:
                state.save()
        return list(honest(batch))

    app.HANDLERS["train"] = train if share or unstable else honest
    try:
        yield
    finally:
        app.HANDLERS["train"] = honest


def chosen_clients(share: float, clients: int) -> set[int]:
    """Return that share of the clients, the same in every run and more of them with a larger share.

    >>> chosen_clients(0.1, 20) < chosen_clients(0.2, 20), len(chosen_clients(0.2, 20))
    (True, 4)
    """
    order = np.random.default_rng(0).permutation(clients)
    return {int(client) for client in order[: round(share * clients)]}


@contextmanager
def corrupted_clients(share: float, clients: int) -> Iterator[None]:
    """Let that share of the clients train on random labels; what they test on stays clean."""
    honest, hostile = Task.all_client_data, chosen_clients(share, clients)

    def all_client_data(self: Task, numbers: Iterable[int], of: int) -> list[ClientData]:
        numbers = list(numbers)
        data = honest(self, numbers, of)
        return [
            _random(self, own, n) if n in hostile else own
            for n, own in zip(numbers, data, strict=True)
        ]

    def _random(task: Task, data: ClientData, client: int) -> ClientData:
        noise = torch.Generator().manual_seed(client)
        labels = torch.randint(task.num_classes, data.train.y.shape, generator=noise)
        return replace(data, train=Split(data.train.x, labels))

    Task.all_client_data = all_client_data  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Task.all_client_data = honest  # type: ignore[method-assign]
