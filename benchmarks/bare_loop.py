"""The yardstick: federated averaging written straight in PyTorch, with no framework around it."""

import numpy as np
import torch
from torch.nn import functional

from ..core.tasks import Samples


class BareLoop:
    """One global model, one local model, an optimiser for every client: nothing else.

    Parameters
    ----------
    model : nn.Module
        The architecture.
    clients : list of Samples
        Their data.
    per_round : int
        Clients chosen at random in a round.
    batch_size : int
        Of the local SGD.
    """

    def __init__(
        self, model: torch.nn.Module, clients: list[Samples], per_round: int, batch_size: int
    ) -> None:
        self.model = model
        self.clients = clients
        self.per_round = per_round
        self.batch_size = batch_size
        self.weights = {k: v.clone() for k, v in model.state_dict().items()}
        self._rng = np.random.default_rng(0)

    def round(self) -> None:
        """Train the chosen clients for one epoch each and average them."""
        chosen = self._rng.choice(len(self.clients), self.per_round, replace=False)
        total = {k: torch.zeros_like(v) for k, v in self.weights.items()}
        examples = 0
        for client in chosen:
            data = self.clients[client]
            self.model.load_state_dict(self.weights)
            optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1)
            for batch in torch.randperm(len(data)).split(self.batch_size):  # type: ignore[no-untyped-call]
                optimiser.zero_grad()
                loss = functional.cross_entropy(self.model(data.x[batch]), data.y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            for name, tensor in self.model.state_dict().items():
                total[name] += len(data) * tensor
            examples += len(data)
        self.weights = {name: tensor / examples for name, tensor in total.items()}
