"""The base class of rules of the :class:`~forager.strategies.layers.cohorts.Cohorts` layer."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ...core.log.events import Event
from ...core.wire.keys import ASK_LOSSES, CONFIG
from ...core.wire.replies import Replies, Row
from ...core.wire.requests import Requests
from ...core.wire.schemas import LossesTold
from ...selectors.stateful import Stateful
from ..federation.federation import Federation, silent

ONLY = "0"  # the cohort that everyone starts in
MEAN = "mean"  # in place of a cohort: the mean of all models, to evaluate

# The new cohorts, each with the old ones that its model is the weighted mean of
Regrouping = dict[str, dict[str, float]]

Sent = Mapping[str, Any]
Ask = Callable[..., dict[str, Any]]  # how a rule asks clients, by their keys: see :class:`Scene`


def asking(federation: Federation, grid: Grid, server_round: int, nodes: Mapping[str, int]) -> Ask:
    """Return how a rule asks clients, who are at these nodes."""

    def ask(
        keys: Sequence[str],
        kind: str,
        records: Sent | Callable[[str], Sent],
        settings: Mapping[str, int | str],
        read: Callable[[str, Row], Any],
    ) -> dict[str, Any]:
        asked = {nodes[key]: key for key in keys}  # its answer may name a client that had no name
        # Most clients are sent the same as others. What was given is kept: its id tells them apart.
        contents: dict[int, tuple[Any, dict[str, Any]]] = {}

        def content(node: int) -> dict[str, Any]:
            own = records(asked[node]) if callable(records) else records
            return contents.setdefault(id(own), (own, {**own, CONFIG: settings}))[1]

        answers = federation.ask(grid, server_round, kind, list(asked), content)
        found = federation.readable(server_round, answers, lambda row: read(asked[row.node], row))
        return {asked[node]: value for node, value in found.items()}

    return ask


@dataclass(frozen=True)
class Scene:
    """What a rule sees when it places clients.

    ``ask(keys, kind, records, settings, read)`` sends clients a message of that kind and returns
    ``read(reply)`` for each client that answered in time. If ``read`` raises a ValueError, the
    reply is set aside. ``records`` go to all clients by name, or are given for each client; equal
    records must be the same object.
    """

    round: int  # the server's
    keys: list[str]  # the clients to place
    models: Mapping[str, ArrayRecord]  # of the cohorts there are
    rounds: Mapping[str, int]  # how many each cohort has trained
    training: bool  # clients are about to train, so that trying another cohort makes sense
    ask: Ask
    note: Callable[[Event], None] = silent  # writes an event
    busy: Sequence[str] = ()  # clients that still train for an earlier round, and cannot be asked


@dataclass(frozen=True)
class CohortSignals:
    """The participants of a cohort in one round: one row of ``signals`` for each."""

    keys: list[str]
    signals: NDArray[np.float32]


class CohortRule(Stateful):
    """All clients in one cohort, always; rules override what they change."""

    own_records: tuple[str, ...] = ()  # names of the records that it reads from replies

    def start(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return the first cohorts and their models."""
        return {ONLY: arrays}

    def place(self, scene: Scene) -> list[str]:
        """Return the cohort of each client, an empty name for one that has no place.

        To evaluate, :data:`MEAN` stands for the mean of all cohorts' models.
        """
        where = self.settled(dict.fromkeys(scene.keys, ONLY))
        return [where[key] for key in scene.keys]

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return where clients belong, given where they were placed: the same if none explores."""
        return dict(placed)

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Return new cohorts before a round begins, if there are to be any."""
        return None

    def guide(self, requests: Requests, keys: Sequence[str]) -> None:
        """Add records to the next training messages, to clients of these keys."""

    def hear(
        self,
        keys: Sequence[str],
        replies: Replies,
        sent: Sequence[ArrayRecord | None],
        skip: Container[int],
    ) -> dict[int, str]:
        """Read this rule's records in replies to the models sent; return the rows without sense.

        Rows to ``skip`` are not looked at. Rules that read one row after the other override
        :meth:`hear_one`.
        """
        wrong: dict[int, str] = {}
        if type(self).hear_one is CohortRule.hear_one:
            return wrong
        for row in replies.rows():
            model = sent[row.place]
            if row.place in skip or model is None:
                continue
            try:
                self.hear_one(keys[row.place], row, model)
            except ValueError as error:
                wrong[row.place] = str(error)
        return wrong

    def hear_one(self, key: str, row: Row, sent: ArrayRecord) -> None:
        """Read this rule's records in the reply of one client; ValueError if senseless."""

    def hear_late(
        self, key: str, cohort: str, server_round: int, signal: NDArray[np.float64]
    ) -> None:
        """Learn from a client's earlier round in a cohort that still exists; most rules cannot."""

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, CohortSignals]
    ) -> Regrouping | None:
        """Look at what the participants of each cohort did; return new cohorts if it is time."""
        return None

    def report(self) -> dict[str, Any]:
        """Return entries for the event log after a round."""
        return {}

    def collected(self) -> dict[str, Any]:
        """Return data from clients that a run may keep for analysis."""
        return {}

    def leaves(self) -> list[str] | None:
        """Return the cohorts that it knows of; nothing if it takes the layer's as they are."""
        return None


class _Core(Protocol):
    """What an algorithm of ``selectors.cohorts`` can do."""

    def leaves(self) -> list[str]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


C = TypeVar("C", bound=_Core)


class CoreRule(CohortRule, Generic[C]):
    """A rule around an algorithm, which holds the cohorts and the state."""

    core: C

    def leaves(self) -> list[str]:
        """Return the leaves of the tree."""
        return self.core.leaves()

    def state_dict(self) -> dict[str, Any]:
        """Return what the algorithm remembers, and the rule itself."""
        return self.core.state_dict() | super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.core.load_state_dict(state)
        super().load_state_dict(state)


def asked_losses(scene: Scene, keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """Ask clients, who are sent all models, for the loss of each; the silent are left out."""
    names = sorted(scene.models)

    def read(key: str, row: Row) -> dict[str, float]:
        told = LossesTold.read(row.metrics, "losses of models", losses=len(names))
        return dict(zip(names, told.losses, strict=True))

    return scene.ask(keys, ASK_LOSSES, dict(scene.models), {}, read) if keys else {}


def split_into(cohorts: Iterable[str], parts: Mapping[str, Sequence[str]]) -> Regrouping | None:
    """Return the regrouping that replaces cohorts by parts with their models; None if none."""
    kept = {name: {name: 1.0} for name in cohorts if name not in parts}
    new = {part: {name: 1.0} for name, own in parts.items() for part in own}
    return kept | new if parts else None


def by_key(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the cohort of each member."""
    return {key: leaf for leaf, keys in groups.items() for key in keys}
