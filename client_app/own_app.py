"""What a client answers about the model and the data of another app, by its hooks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from ..core.learning.batches import batch_seed
from ..core.learning.fisher import fisher_diagonal, trainable_shapes
from ..core.learning.gradient_rows import sample_rows
from ..core.learning.model_arrays import load_arrays, read_arrays
from ..core.tasks.splits import Split
from ..core.wire import sparse
from ..core.wire.arrays import flat_change, from_record
from ..core.wire.changes import LACKS_BASE
from ..core.wire.keys import (
    LOSS,
    LOSSES,
    METRICS,
    NUM_EXAMPLES,
    PAYLOAD,
    REFERENCE,
    ROUND,
    SIMILARITY,
    SUPPORT,
    WANTS,
)
from ..core.wire.records import entries
from ..core.wire.supports import encode_support, model_tag
from ..selectors.data_selectors.budgets import budget_count
from ..selectors.data_selectors.coreset import choose_coreset
from ..selectors.data_selectors.uniform import uniform
from ..selectors.similarities.index_overlap import top_k_support
from ..selectors.similarities.power_norm import Reference
from .device.held_models import HeldModel, hold, received_models
from .device.state import ClientState
from .hooks.coresets import fingerprint
from .identity import client_key
from .request import message_config

_KEPT = "coreset"
_BATCH = 512
Arrays = dict[str, NDArray[Any]]


class Hooks:
    """The model, the data and the loss of an app."""

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        data: Callable[[Context], Any],
        loss: Callable[[Tensor, Tensor], Tensor] | None,
        **settings: float,
    ) -> None:
        self.model: nn.Module = model if isinstance(model, nn.Module) else model()
        self._data = data
        self.loss = loss or functional.cross_entropy
        self.settings = settings

    def data(self, context: Context) -> Split:
        """Return the client's samples as tensors."""
        return as_split(self._data(context))

    def size(self, context: Context) -> int:
        """Return how many samples the client has."""
        return len(self.data(context))

    def rng(self, context: Context, number: int) -> np.random.Generator:
        """Return a generator that is the same whenever the client asks for it again."""
        seed = batch_seed(int(self.settings["seed"]), client_key(context), number)
        return np.random.default_rng(seed)


def as_split(data: Any) -> Split:
    """Return data as one tensor of inputs and one of labels.

    >>> as_split(([[1.0], [2.0]], [0, 1])).x.shape
    torch.Size([2, 1])
    """
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, Split):
        return data
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], tuple):
        x, y = data
    elif isinstance(data, Dataset) or hasattr(data, "__getitem__"):
        items = [data[i] for i in range(len(data))]
        if not items or not isinstance(items[0], tuple | list) or len(items[0]) != 2:
            kind = type(items[0]).__name__ if items else "nothing"
            raise ValueError(f"client_mod(data=...): expected pairs (input, label), got {kind}")
        x = torch.stack([torch.as_tensor(item[0]) for item in items])
        y = torch.as_tensor([int(item[1]) for item in items])
    else:
        raise ValueError(
            f"client_mod(data=...): expected inputs and labels, a data set or a data loader, "
            f"got {type(data).__name__}"
        )
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if len(x) != len(y) or not len(y):
        raise ValueError(f"client_mod(data=...): {len(x)} inputs and {len(y)} labels")
    return Split(x.float() if x.is_floating_point() else x, y.long())


def subset(data: Any, positions: Sequence[int]) -> Any:
    """Return some samples of data, in the form that the data have.

    >>> subset((torch.arange(4), torch.arange(4)), [1, 3])[0].tolist()
    [1, 3]
    """
    if isinstance(data, DataLoader):
        return DataLoader(
            Subset(data.dataset, list(positions)),
            batch_size=data.batch_size,
            shuffle=isinstance(data.sampler, RandomSampler),
            collate_fn=data.collate_fn,
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        return tuple(part[list(positions)] for part in data)
    return Subset(data, list(positions))


def summary(hooks: Hooks, message: Message, context: Context) -> RecordDict:
    """Return the similarity or the loss that the server asks for."""
    asked, data = entries(message_config(message)), hooks.data(context)
    wants = str(asked[WANTS])
    (model,) = received_models([message], [context])
    if model is None:
        return _metrics(data, {LACKS_BASE: 1})
    arrays = from_record(model.record)
    if wants == LOSS:
        value = _loss(hooks, arrays, data)
    elif wants == SIMILARITY:
        change = _proxy_change(hooks, arrays, data, hooks.rng(context, int(asked[ROUND])))
        value = _similarity(hooks, asked, model, change)
    else:
        raise ValueError(f"{WANTS} = {wants!r}: expected {SIMILARITY} or {LOSS}")
    hold(model, context)
    return _metrics(data, {wants: value})


def losses(hooks: Hooks, message: Message, context: Context) -> RecordDict:
    """Return the loss of each model in a message, in the order of their names."""
    data = hooks.data(context)
    models = {n: r for n, r in entries(message.content).items() if isinstance(r, ArrayRecord)}
    found = [_loss(hooks, from_record(models[name]), data) for name in sorted(models)]
    return _metrics(data, {LOSSES: found})


def support(hooks: Hooks, message: Message, context: Context) -> RecordDict:
    """Return which parameters matter most to the client after a little training."""
    data, asked = hooks.data(context), entries(message_config(message))
    models = [r for r in entries(message.content).values() if isinstance(r, ArrayRecord)]
    if models:
        arrays = from_record(models[0])
        _proxy_change(hooks, arrays, data, hooks.rng(context, int(asked[ROUND])))
    importance = fisher_diagonal(hooks.model, hooks.loss, data.x, data.y)
    shapes = trainable_shapes(hooks.model)
    count = max(1, round(hooks.settings["support_share"] * importance.size))
    content = _metrics(data, {})
    if importance.any():
        indices = top_k_support(importance, count)
        payload = encode_support(indices, importance.size, model_tag(shapes))
        content[SUPPORT] = ConfigRecord({PAYLOAD: payload})
    return content


def choose(
    hooks: Hooks,
    context: Context,
    state: ClientState,
    arrays: Arrays,
    targets: NDArray[Any] | None,
    *,
    budget: float,
    server_round: int,
) -> dict[str, Any]:
    """Return the coreset to train on: a new one if there are targets, else the one that was kept.

    A client that has none trains on a random subset of the same size, the same in every round.
    """
    data = hooks.data(context)
    size = len(data) if budget == 1 else budget_count(budget, len(data))
    kept: dict[str, Any] | None = state.get(_KEPT)
    if kept is not None and kept["data"] != fingerprint(data):
        kept = None  # the data are no longer those that it was chosen from
    if targets is not None:
        rows = sample_rows(hooks.model, arrays, data, "distance", per_class=True)
        labels, rng = data.y.numpy(), hooks.rng(context, server_round)
        chosen = choose_coreset("distance", rows, labels, size, targets=targets, rng=rng)
        if len(chosen):
            indices = chosen.indices.astype(np.int64)
            kept = {"indices": indices, "round": server_round, "data": fingerprint(data)}
    if kept is None:
        state.pop(_KEPT, None)
        return {"indices": uniform(len(data), size, hooks.rng(context, 0)), "round": 0}
    state[_KEPT] = kept
    return {"indices": kept["indices"], "round": int(kept["round"])}


def _proxy_change(
    hooks: Hooks, arrays: Arrays, data: Split, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return how a few mini-batches of SGD change the model, which is left as they left it."""
    settings, model = hooks.settings, hooks.model
    load_arrays(model, arrays)
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    size = min(int(settings["batch_size"]), len(data))
    for _ in range(int(settings["batches"])):
        places = torch.from_numpy(rng.choice(len(data), size, replace=False))
        value = hooks.loss(model(data.x[places]), data.y[places]).mean()
        gradients = torch.autograd.grad(value, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=settings["learning_rate"])
    return flat_change(arrays, {**arrays, **read_arrays(model)})


def _similarity(
    hooks: Hooks, asked: dict[str, Any], model: HeldModel, change: NDArray[np.float32]
) -> float:
    if REFERENCE in asked:
        update = sparse.decode(asked[REFERENCE], size=change.size)
    elif model.difference is not None:
        update = model.difference
    else:
        raise ValueError(f"{REFERENCE}: the last global update is missing")
    return float(Reference(update, hooks.settings["power"]).similarity(change))


@torch.no_grad()
def _loss(hooks: Hooks, arrays: Arrays, data: Split) -> float:
    load_arrays(hooks.model, arrays)
    hooks.model.eval()
    total = 0.0
    for start in range(0, len(data), _BATCH):
        x, y = data.x[start : start + _BATCH], data.y[start : start + _BATCH]
        total += float(hooks.loss(hooks.model(x), y).mean()) * len(y)
    return total / len(data)


def _metrics(data: Split, values: dict[str, Any]) -> RecordDict:
    return RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: len(data), **values})})
