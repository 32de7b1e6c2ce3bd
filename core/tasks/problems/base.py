"""Learning problems: a loss per sample, metrics and the form of targets; classification."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ..errors import TaskError
from ..metrics import Metric


class Problem:
    """A learning problem; a user's own task is a subclass with data and a model.

    Override the methods that differ. All get tensors with one sample per row.

    A problem with a loss of its own:

    >>> from forager.core.tasks.problems import Regression
    >>> class Robust(Regression):
    ...     def loss(self, outputs, targets):
    ...         return torch.nn.functional.huber_loss(outputs, targets, reduction="none").mean(1)
    >>> Robust().loss(torch.tensor([[3.0]]), torch.tensor([[0.0]]))
    tensor([2.5000])
    """

    kind: ClassVar[str] = "own"
    # What models are judged by, names of ``core.tasks.metrics.NAMED`` or a user's own. The first
    # decides: early stop, comparisons and "best" follow it.
    metrics: Sequence[str | Metric] = ()
    has_classes: bool = False  # whether the target of a sample is one class
    tokens: bool = False  # whether inputs are integers, such as token ids, and stay integers
    overlapping: bool = False  # whether samples share parts, as windows of a text do
    default_model: str = "softmax"  # the built-in model that ``model = 'auto'`` takes
    # For data sets that are read lazily: makes inputs and targets of a list of samples, and how
    # many processes read ahead
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0

    # ---- What a user's own task adds: data and a model (see `core.tasks.own_task`)

    def data(self) -> Any:
        """Return one pool of data, which the run divides among clients (``partition``)."""
        raise NotImplementedError

    def client_data(self, client: int, clients: int) -> Any:
        """Return the training data of client ``client`` of ``clients``, instead of a pool."""
        raise NotImplementedError

    def client_name(self, client: int, clients: int) -> str:
        """Return the readable name of a client; by default its number."""
        return str(client)

    def client_test_data(self, client: int, clients: int) -> Any:
        """Return a client's test data; without them, it holds out ``data.client-test-share``."""
        raise NotImplementedError

    def device_data(self, path: str) -> Any:
        """Return the training data of a device, from the ``data-path`` of its node config."""
        raise NotImplementedError

    def server_data(self) -> Any:
        """Return the server's test data."""
        raise NotImplementedError

    def model(self) -> torch.nn.Module:
        """Return a new model; the run seeds its initial weights."""
        raise NotImplementedError

    def heed(self, model: torch.nn.Module) -> None:
        """Read what a new model declares about its outputs."""

    # ---- What is minimised

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, shape (n,)."""
        raise NotImplementedError

    def mean_loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean loss of a batch, weighted if there are weights."""
        losses = self.checked_loss(outputs, targets)
        return losses.mean() if weights is None else (losses * weights).sum() / weights.sum()

    def checked_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample; raise an error if the function returns anything else."""
        losses = self.loss(outputs, targets)
        count = len(targets)
        if not isinstance(losses, Tensor) or tuple(losses.shape) != (count,):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise TaskError(
                f"{type(self).__name__}.loss returned {shape} for outputs of shape "
                f"{tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}; it must "
                f"return one loss per sample, shape ({count},): use reduction='none' and average "
                "over all axes but the first"
            )
        return losses

    @property
    def closed_form(self) -> bool:
        """Whether :meth:`output_gradients` needs no backward pass.

        It then takes outputs with classes on the second axis and samples on the last, too.
        """
        return False

    def output_gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample and its gradient with respect to the outputs."""
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            losses = self.checked_loss(leaf, targets)
            (gradients,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradients

    # ---- Targets

    def checked_targets(self, targets: Any, count: int, name: str) -> NDArray[Any]:
        """Return targets in the form that the loss takes; raise an error if they do not fit."""
        array = np.asarray(targets)
        if array.shape[:1] != (count,):
            raise TaskError(
                f"{name} has shape {array.shape} but there are {count} samples; it must hold one "
                "row per sample"
            )
        return array

    def num_outputs(self, *targets: NDArray[Any]) -> int:
        """Return the number of outputs that a model needs for these targets."""
        raise NotImplementedError

    def output_shape(self, num_outputs: int, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a model's output for one sample."""
        return (num_outputs,)

    def strata(self, targets: NDArray[Any]) -> NDArray[np.int64]:
        """Return the stratum of each sample, for methods that work label by label."""
        return np.zeros(len(targets), dtype=np.int64)

    def num_strata(self, num_outputs: int) -> int:
        """Return the number of strata."""
        return 1

    def spread_by(self, targets: NDArray[Any]) -> NDArray[np.int64]:
        """Return the group of each sample that partitions spread unevenly."""
        return self.strata(targets)

    # ---- What metrics look at

    def predictions(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return predictions, their scores, and the truth, one row per prediction."""
        return outputs, outputs, targets

    def loss_sum(self, losses: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the sum of the losses of a batch, and the number of its predictions."""
        return float(losses.sum()), float(len(losses))


class Classification(Problem):
    """Cross-entropy, judged by accuracy.

    >>> problem = Classification()
    >>> problem.loss(torch.zeros(1, 4), torch.tensor([2])).exp()
    tensor([4.])
    """

    kind = "classification"
    metrics = ("accuracy",)
    has_classes = True

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")

    def mean_loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean cross-entropy, weighted if there are weights."""
        if weights is None and self.closed_form:
            return functional.cross_entropy(outputs, targets)
        return super().mean_loss(outputs, targets, weights)

    @property
    def closed_form(self) -> bool:
        """Whether the loss is cross-entropy, and not the user's own."""
        return type(self).loss is Classification.loss

    def output_gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return cross-entropies, and softmax minus one-hot, without a backward pass."""
        if not self.closed_form:
            return super().output_gradients(outputs, targets)
        log_probabilities = outputs.log_softmax(1)
        labels = targets.unsqueeze(1)
        losses = -log_probabilities.gather(1, labels).squeeze(1)
        # Along any axis but the last, softmax takes a fifth of the time of an exponential.
        last = outputs.dim() == 2
        gradients = log_probabilities.exp_() if last else outputs.softmax(1)
        gradients.scatter_add_(1, labels, gradients.new_full(labels.shape, -1.0))
        return losses, gradients

    def checked_targets(self, targets: Any, count: int, name: str) -> NDArray[Any]:
        """Return labels: one whole number per sample."""
        array = np.asarray(targets)
        if array.size != count or array.shape[:1] != (count,):
            raise TaskError(
                f"{name} has shape {array.shape} but there are {count} samples; it must hold one "
                "label per sample (set data.kind for other problems than classification)"
            )
        if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and (array % 1 != 0).any()):
            text = "number the classes 0, 1, 2, ..." if array.dtype.kind in "USO" else ""
            how = text or "for targets that are no classes set data.kind = 'regression'"
            raise TaskError(f"{name} is {array.dtype}; labels must be whole numbers ({how})")
        return array.reshape(-1).astype(np.int64)

    def num_outputs(self, *targets: NDArray[Any]) -> int:
        """Return the largest label plus one."""
        return 1 + int(max(labels.max(initial=-1) for labels in targets))

    def strata(self, targets: NDArray[Any]) -> NDArray[np.int64]:
        """Return the labels."""
        return np.asarray(targets, dtype=np.int64)

    def num_strata(self, num_outputs: int) -> int:
        """Return the number of classes."""
        return num_outputs

    def predictions(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the likeliest class, the probabilities of all, and the label."""
        return outputs.argmax(1), torch.softmax(outputs, 1), targets
