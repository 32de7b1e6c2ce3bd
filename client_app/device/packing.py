"""What a device stores of a sample: its input and, where the target is no class, that as well.

Rules that keep or drop samples go by strata: the classes, or whatever the problem has instead.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.tasks import Split, Task
from ...core.tasks.errors import TaskError
from ...core.tasks.scaling import Scaling

_EXACT = 2**24  # whole numbers below it are the same in single precision


@dataclass(frozen=True)
class Packing:
    """How samples of a task are stored.

    >>> packing = Packing((2,), (1,), False, False, plain=False)
    >>> rows = packing.pack(np.float32([[1, 2]]), np.float32([[0.5]]))
    >>> rows
    array([[1. , 2. , 0.5]], dtype=float32)
    >>> packing.unpack(rows, np.array([0])).y
    tensor([[0.5000]])
    """

    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    whole_inputs: bool
    whole_targets: bool
    plain: bool  # the class is the whole target: inputs are stored as they are
    scaling: Scaling | None = None  # of what is unpacked: what is stored outlives a run's scale

    @classmethod
    def of(cls, task: Task) -> "Packing":
        """Return how samples of a task are stored."""
        problem = task.problem
        return cls(
            task.input_shape,
            () if problem.has_classes else task.target_shape,
            task.input_dtype == torch.int64,
            problem.kind in ("segmentation", "next-token"),
            plain=problem.has_classes and task.input_dtype != torch.int64,
            scaling=task.scaling,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is stored of a sample."""
        if self.plain:
            return self.input_shape
        return (math.prod(self.input_shape) + math.prod(self.target_shape),)

    def pack(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
        """Return one row per sample."""
        if self.plain:
            return np.asarray(x, dtype=np.float32)
        for column in (x, y):
            if column.dtype.kind in "iu" and np.abs(column).max(initial=0) >= _EXACT:
                raise TaskError(f"whole numbers from {_EXACT} on cannot be stored by a stream")
        rows = [np.asarray(each, dtype=np.float32).reshape(len(each), -1) for each in (x, y)]
        return np.concatenate(rows, axis=1)

    def unpack(self, rows: NDArray[np.float32], strata: NDArray[Any]) -> Split:
        """Return samples as they were, or scaled where the run scales."""
        if self.plain:
            return self._scaled(Split(torch.from_numpy(rows), torch.from_numpy(strata)))
        cut = math.prod(self.input_shape)
        x = torch.from_numpy(rows[:, :cut].reshape(len(rows), *self.input_shape))
        y = torch.from_numpy(rows[:, cut:].reshape(len(rows), *self.target_shape))
        x, y = x.long() if self.whole_inputs else x, y.long() if self.whole_targets else y
        return self._scaled(Split(x, y))

    def _scaled(self, samples: Split) -> Split:
        if self.scaling is None or not len(samples):
            return samples
        return Split(self.scaling.apply(samples.x), samples.y)
