"""Clients that forget, or whose labels are wrong: what cohorts have to put up with.

Both change this process's clients while a ``with`` block lasts; runs of a sweep have a process to
themselves one after the other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from flwr.app import Context, Message

from ..client_app import app
from ..client_app.device.state import ClientState
from ..core.tasks.splits import ClientData, Split
from ..core.tasks.task import Task

RECORDS = "affinity"  # the section of a client's state that it loses


@contextmanager
def forgetful_clients(share: float, seed: int) -> Iterator[None]:
    """Let clients lose their affinity records before that share of their trainings."""
    honest, rng = app.HANDLERS["train"], np.random.default_rng([seed, 13])

    def train(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        for context in contexts:
            state = ClientState(context)
            if rng.random() < share and state.pop(RECORDS, None) is not None:
                state.save()
        return list(honest(messages, contexts))

    app.HANDLERS["train"] = train if share else honest
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
    honest, hostile = Task.client_data, chosen_clients(share, clients)

    def client_data(self: Task, partition_id: int, num_partitions: int) -> ClientData:
        data = honest(self, partition_id, num_partitions)
        if partition_id not in hostile:
            return data
        noise = torch.Generator().manual_seed(partition_id)
        labels = torch.randint(self.num_classes, data.train.y.shape, generator=noise)
        return replace(data, train=Split(data.train.x, labels))

    Task.client_data = client_data  # type: ignore[method-assign]
    try:
        yield
    finally:
        Task.client_data = honest  # type: ignore[method-assign]
