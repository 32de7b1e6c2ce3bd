"""Who was given what: everything under way, in one place.

An :class:`Assignment` is what a client was asked to do. Who is busy, late, expected, or was sent
which model are questions to the :class:`Ledger`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord

from ...core.wire.keys import ARRAYS
from ...core.wire.tables import Replies, Requests


@dataclass(slots=True)
class Assignment:
    """What a client was asked to do.

    Attributes
    ----------
    node : int
        Who was asked.
    kind : str
        To do what: the kind of message.
    round : int
        In which round.
    cohort : str or None
        For which cohort; None if there are none.
    model : ArrayRecord or None
        The model that it was sent.
    read : bool
        Whether its reply has been read: there is no second one.
    """

    node: int
    kind: str
    round: int
    cohort: str | None
    model: ArrayRecord | None
    read: bool = False


class Ledger:
    """The assignments of a run.

    Examples
    --------
    >>> from flwr.app import Message, RecordDict
    >>> from ...core.wire.flower_private import TaskIdentity
    >>> TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    >>> ledger = Ledger()
    >>> asked = Requests(Message(RecordDict(), dst_node_id=7, message_type="train"), [7, 8])
    >>> ledger.assign(asked, server_round=3)
    >>> ledger.of_node(8).round, ledger.of_node(9)
    (3, None)
    """

    def __init__(self) -> None:
        self.busy: set[int] = set()  # nodes that still train for an earlier round
        self._occasion = ("", 0)
        self._last: dict[int, Assignment] = {}  # the last of each node

    def assign(self, requests: Requests, server_round: int, cohort: str | None = None) -> None:
        """Keep what every client is asked.

        What was asked on another occasion, of another kind or in another round, is forgotten,
        unless its client still trains.
        """
        kind = requests.kind
        if self._occasion != (kind, server_round):
            self._occasion = kind, server_round
            self._last = {node: each for node, each in self._last.items() if node in self.busy}
        for node, model in zip(requests.nodes, requests.column(ARRAYS), strict=True):
            self._last[node] = Assignment(node, kind, server_round, cohort, model)

    def of_node(self, node: int) -> Assignment | None:
        """Return what a client was asked last."""
        return self._last.get(node)

    def of(self, replies: Replies) -> "Sequence[Assignment | None]":
        """Return what each row answers; None for one that nobody asked."""
        if replies.assignments:
            return replies.assignments
        return [self._last.get(node) for node in replies.nodes]
