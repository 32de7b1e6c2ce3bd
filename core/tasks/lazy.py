"""Samples that are read when they are needed, by torch's DataLoader."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from .errors import TaskError, one_line
from .splits import Batch, Samples

Collate = Callable[[list[Any]], Any]


class LazySplit(Samples):
    """A ``torch.utils.data.Dataset`` of pairs of input and target."""

    def __init__(
        self,
        dataset: Dataset[Any] | Sequence[Any],
        origin: str,
        collate: Collate | None = None,
        workers: int = 0,
    ) -> None:
        self.dataset, self.origin, self.workers = dataset, origin, workers
        self.collate = collate or default_collate
        try:
            self._count = len(dataset)  # type: ignore[arg-type]
        except TypeError as error:
            raise TaskError(
                f"{origin}: a {type(dataset).__name__} has no length; give a data set with "
                "__len__ and __getitem__, so that samples can be chosen"
            ) from error
        self._targets: torch.Tensor | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Memory that is taken: none to speak of."""
        return 0

    @property
    def x(self) -> torch.Tensor:  # type: ignore[override]
        """All inputs, read now: for methods that compare all samples at once."""
        parts = [x for x, _ in self.batches(256)]
        if not all(isinstance(part, torch.Tensor) for part in parts):
            raise TaskError(f"{self.origin}: this method needs inputs that are one tensor")
        return torch.cat(parts) if parts else torch.zeros(0, 1)

    @property
    def y(self) -> torch.Tensor:  # type: ignore[override]
        """All targets, read once."""
        if self._targets is None:
            parts = [y for _, y in self.batches(256)]
            self._targets = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
        return self._targets

    def select(self, positions: torch.Tensor) -> "LazySplit":
        """Return some of the samples."""
        chosen: Any = Subset(self.dataset, positions.tolist())  # type: ignore[arg-type]
        return LazySplit(chosen, self.origin, self.collate, self.workers)

    def follow(self, plan: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield inputs and targets of one batch after the other."""
        loader = DataLoader(
            self.dataset,  # type: ignore[arg-type]
            batch_sampler=[positions.tolist() for positions in plan],
            collate_fn=self._collated,
            num_workers=self.workers,
        )
        for pair in loader:
            yield self._checked(pair)

    def _collated(self, samples: list[Any]) -> Any:
        try:
            return self.collate(samples)
        except Exception as error:
            name = getattr(self.collate, "__name__", type(self.collate).__name__)
            raise TaskError(
                f"{self.origin}: {name} could not put {len(samples)} samples together: "
                f"{type(error).__name__}: {one_line(error)}"
            ) from error

    def _checked(self, pair: Any) -> Batch:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TaskError(
                f"{self.origin}: a batch is a {type(pair).__name__}; samples must be pairs of "
                "input and target, or a collate function must make such a pair of them"
            )
        inputs, targets = pair
        if not isinstance(targets, torch.Tensor):
            raise TaskError(f"{self.origin}: targets are {type(targets).__name__}, not a tensor")
        return _single(inputs), _single(targets)


def _single(value: Any) -> Any:
    """Return doubles as single precision: Python's numbers are collated to doubles."""
    doubles = isinstance(value, torch.Tensor) and value.dtype == torch.float64
    return value.float() if doubles else value
