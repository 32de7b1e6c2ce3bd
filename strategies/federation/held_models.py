"""Which model each client keeps, and the last models that a change can start from.

Clients keep the model of their last question and, where every message is to come as a change, that
of their last training or evaluation. What the server believes of them may be wrong, as a client can
lose its model at any time: it then says so, and is sent the whole.
"""

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_MOST_HELD = 100_000  # nodes whose held model is known; others are sent the whole model
# Models that changes start from. Clients that train every tenth round hold one that is ten rounds
# old; there are more of a small model, as they also take more time to encode from.
_FEWEST, _MOST, _MOST_BYTES = 4, 64, 2**26


class HeldModels:
    """What the server knows of the models that its clients keep, by their tags.

    With ``every_message`` clients are to keep the model of every message, not only that of a
    question.
    """

    def __init__(self, *, every_message: bool = False) -> None:
        self.every_message = every_message
        self.models: dict[str, Arrays] = {}  # those that changes can start from, the oldest first
        self._held: dict[int, str] = {}

    def of(self, node: int) -> str:
        """Return the tag of the model that a node keeps; empty if it is not known to keep one."""
        return self._held.get(node, "")

    def anybody(self) -> bool:
        """Return whether any node is known to keep a model."""
        return bool(self._held)

    def learn(self, nodes: Iterable[int], tag: str) -> None:
        """Learn that nodes keep the model of a tag, or with an empty one that they keep none."""
        if len(self._held) > _MOST_HELD:  # nodes come and go under new ids
            self._held.clear()
        for node in nodes:
            if tag:
                self._held[node] = tag
            else:
                self._held.pop(node, None)

    def sent(self, node: int, tag: str) -> None:
        """Learn that a node is sent a model to keep: until it answers, nobody knows which it has.

        An answer that is lost, late or an error then needs no care: the next message is whole.
        """
        if self._held.get(node) != tag:
            self._held.pop(node, None)

    def keep(self, tag: str, arrays: Arrays) -> None:
        """Keep a model for changes to start from; the oldest ones go when there are too many."""
        self.models.pop(tag, None)
        self.models[tag] = arrays
        size = sum(array.nbytes for array in arrays.values())
        fit = max(_FEWEST, min(_MOST, _MOST_BYTES // max(1, size)))
        for oldest in list(self.models)[: max(0, len(self.models) - fit)]:
            del self.models[oldest]
