"""What clients trained last, in bounded memory."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

MOST_BYTES = 256 * 2**20


class ModelMemory:
    """The last model of each client, as a rounded difference from the first one kept.

    Differences are small, so two bytes per number are enough: each array is scaled by its largest
    difference, and no number is off by more than a thousandth of that. When memory is full, the
    client that has not trained for longest is forgotten. One is always kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._first: dict[str, NDArray[Any]] = {}
        self._models: dict[str, dict[str, tuple[float, NDArray[Any]]]] = {}  # the newest last
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __contains__(self, key: object) -> bool:
        return key in self._models

    def keep(self, key: str, arrays: Arrays) -> None:
        """Remember what a client trained, in place of what it trained before."""
        if not self._first:
            self._first = {name: np.array(array) for name, array in arrays.items()}
        self._forget(key)
        self._models[key] = {name: self._packed(name, array) for name, array in arrays.items()}
        self.bytes += _size(self._models[key])
        while self.bytes > self.most_bytes and len(self._models) > 1:
            self._forget(next(iter(self._models)))

    def get(self, key: str) -> dict[str, NDArray[Any]] | None:
        """Return what a client trained last; nothing if it is not remembered."""
        if key not in self._models:
            return None
        return {name: self._unpacked(name, *kept) for name, kept in self._models[key].items()}

    def _forget(self, key: str) -> None:
        gone = self._models.pop(key, None)
        if gone is not None:
            self.bytes -= _size(gone)

    def _packed(self, name: str, array: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        if array.dtype.kind != "f":
            return 1.0, np.array(array)
        change = np.subtract(array, self._first[name], dtype=np.float32)
        largest = float(np.max(np.abs(change), initial=0.0))
        if not 0 < largest < np.inf:
            return 0.0, np.zeros(array.shape, dtype=np.float16)
        return largest, (change / np.float32(largest)).astype(np.float16)

    def _unpacked(self, name: str, scale: float, kept: NDArray[Any]) -> NDArray[Any]:
        first = self._first[name]
        if first.dtype.kind != "f":
            return kept
        restored: NDArray[Any] = first + np.float32(scale) * kept.astype(np.float32)
        return restored.astype(first.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the models as they are kept."""
        models = {
            key: {name: {"scale": scale, "kept": kept} for name, (scale, kept) in model.items()}
            for key, model in self._models.items()
        }
        return {"first": self._first, "models": models}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._first = dict(state["first"])
        self._models = {
            str(key): {n: (float(e["scale"]), e["kept"]) for n, e in model.items()}
            for key, model in state["models"].items()
        }
        self.bytes = sum(_size(model) for model in self._models.values())


def _size(model: Mapping[str, tuple[float, NDArray[Any]]]) -> int:
    return sum(kept.nbytes for _, kept in model.values())
