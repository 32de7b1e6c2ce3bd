"""The model, loss and samples of a user's own app, as a task with a name ``app:...``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from .problems import Classification
from .spec import APP
from .splits import Split

_apps: dict[str, "AppProblem"] = {}

Loss = Callable[[Tensor, Tensor], Tensor]


class AppProblem(Classification):
    """The learning problem of a user's own app, and its samples."""

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        samples: Any = None,
        loss: Loss | None = None,
    ) -> None:
        self.made: nn.Module = model if isinstance(model, nn.Module) else model()
        self.samples, self.own_loss = samples, loss

    @property
    def closed_form(self) -> bool:
        """Whether the loss is cross-entropy."""
        return self.own_loss is None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, whatever the app's own does with several."""
        if self.own_loss is None:
            return super().loss(outputs, targets)
        losses = self.own_loss(outputs, targets)
        if losses.shape == (len(targets),):
            return losses
        each = range(len(targets))
        return torch.stack([self.own_loss(outputs[i : i + 1], targets[i : i + 1]) for i in each])

    def model(self) -> nn.Module:
        """Return the model."""
        return self.made

    @property
    def outputs(self) -> int:
        """Outputs of the model's last linear layer; 0 if it has none."""
        linear = [m.out_features for m in self.made.modules() if isinstance(m, nn.Linear)]
        return linear[-1] if linear else 0

    def client_data(self, client: int, clients: int) -> Any:
        """Return nothing: only a client has its data."""
        raise NotImplementedError

    def server_data(self) -> Split:
        """Return what the server tests on."""
        if self.samples is None:
            raise NotImplementedError
        return as_split(self.samples)


def register(problem: AppProblem) -> str:
    """Let tasks find a problem of this process by a name, which is returned."""
    name = f"{APP}{type(problem.made).__name__}"
    _apps[name] = problem
    return name


def registered(name: str) -> AppProblem | None:
    """Return the problem of a name; None if it is no app's."""
    return _apps.get(name)


def as_split(data: Any) -> Split:
    """Return data as one tensor of inputs and one of labels."""
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, Split):
        return data
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], tuple):
        x, y = data
    elif hasattr(data, "__getitem__"):
        items = [data[i] for i in range(len(data))]
        if not items or not isinstance(items[0], tuple | list) or len(items[0]) != 2:
            kind = type(items[0]).__name__ if items else "nothing"
            raise ValueError(f"data: expected pairs (input, label), got {kind}")
        x, y = default_collate(items)
    else:
        raise ValueError(
            "data: expected inputs and labels, a data set or a data loader, "
            f"got {type(data).__name__}"
        )
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if len(x) != len(y) or not len(y):
        raise ValueError(f"data: {len(x)} inputs and {len(y)} labels")
    return Split(x.float() if x.is_floating_point() else x, y.long())
