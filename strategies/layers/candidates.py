"""Candidates of a round: how many clients, which of those connected, and what is known of them."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ...core.wire.keys import HISTOGRAM, LOSS, SIMILARITY, UTILITY
from ...core.wire.replies import Replies
from ...core.wire.schemas import BadReply
from ...selectors.client_selectors.age import oldest
from ...selectors.client_selectors.base import Candidates, ClientSelector
from ..federation.federation import Federation
from ..federation.grids import kept_nodes
from ..federation.observations import ASKED, Column, readers
from ..federation.plausibility import UsualSize
from ..federation.questions import Questions
from ..federation.update_observations import UpdateObservations

_log = logging.getLogger("forager")
_IMPLAUSIBLE = 20.0  # times the usual loss that a client may claim, once some are known
_FEWEST = 6  # clients that define usual values: losses and sizes of honest ones differ much
_MOST_FAILURES = 0.8  # share of failures that more clients are asked for


@dataclass
class Participation:
    """How many clients take part in a round, and who may."""

    count: int = 0  # clients that train; 0 uses the fraction instead
    fraction: float = 1.0  # share of the connected clients that train, at least one
    fraction_evaluate: float = 0.0  # share that evaluates, drawn uniformly
    over_commit: float = 0.0  # share asked beyond that, so that nobody waits for the late
    at_least: int = 1  # if fewer are ready to train, those that rest are asked too
    at_most: float = 0.0  # times as often as the average that a client is chosen; 0: no limit
    # Rounds in a row without anybody to train after which to fail; 0 for any number. For Flower's
    # own loop, which would go on with them to the end.
    empty_rounds: int = 0

    def wanted(self, available: int) -> int:
        """Return how many replies a round needs."""
        return self.count or max(1, round(self.fraction * available))

    def asked(
        self, federation: Federation, wanted: int, nodes: Sequence[int], server_round: int
    ) -> int:
        """Return how many to ask: with over-commitment as many as are likely to fail, or more."""
        # Not one more because 50 * 1.1 is slightly above 55
        asked = math.ceil(wanted * (1 + self.over_commit) - 1e-9)
        ready = federation.ready_to_train(nodes, server_round) if self.over_commit else ()
        if not ready:
            return asked
        fail = float(federation.times.failures(federation.keys(ready)).mean())
        return max(asked, math.ceil(wanted / (1 - min(fail, _MOST_FAILURES)) - 1e-9))

    def eligible(
        self, federation: Federation, nodes: Sequence[int], count: int, server_round: int
    ) -> Sequence[int]:
        """Return those that may be chosen: rested, and with over-commitment expected in time."""
        ready = federation.ready_to_train(nodes, server_round)
        eligible = ready if len(ready) >= min(count, self.at_least) else nodes
        if self.over_commit:
            times, key = federation.times, federation.key
            likely = [n for n in eligible if times.expected_in_time(key(n), server_round)]
            eligible = likely if len(likely) >= count else eligible
        if not self.at_most or len(eligible) <= count:
            return eligible
        picks = federation.memory.picked(federation.keys(eligible))
        often = picks >= self.at_most * (1 + picks.mean())
        if not often.any() or len(eligible) - often.sum() < count:
            return eligible
        return kept_nodes(eligible, ~often)


class CheckedClaims:
    """What clients report about themselves: compared with all reports, then remembered."""

    def __init__(self, federation: Federation, needs: frozenset[str], questions: Questions) -> None:
        self._federation = federation
        self._readers = readers(needs, questions.bounded, questions.hashes)
        self._updates = UpdateObservations(needs, questions.seed, questions.steps_of)
        self._usual = {name: UsualSize(_IMPLAUSIBLE, _FEWEST) for name in (LOSS, UTILITY)}

    def settle(self) -> None:
        """Begin a round."""
        for usual in self._usual.values():
            usual.settle()

    def take(self, server_round: int, replies: Replies) -> None:
        """Remember reports in training replies; an invalid report does not exclude its update."""
        if not self._readers and not self._updates.names:
            return
        federation, memory = self._federation, self._federation.memory
        assigned = federation.ledger.of(replies)
        rounds = [server_round if each is None else each.round for each in assigned]
        keys = federation.keys(replies.nodes)
        columns: list[tuple[str, Column]] = [
            (n, read(replies)) for n, read in self._readers.items()
        ]
        sent = [None if each is None else each.model for each in assigned]
        columns += [(n, (self._updates.read(n, sent, replies), {})) for n in self._updates.names]
        for name, (values, wrong) in columns:
            self._hear(keys, name, values)
            for row, value in enumerate(values):
                newer = memory.told_in(keys[row], name) > rounds[row]
                if value is None or row in wrong or newer:
                    continue
                try:
                    self._learn(keys[row], name, value, rounds[row])
                except BadReply as error:
                    wrong[row] = str(error)
            for row, reason in wrong.items():
                if name == UTILITY:  # unknown would be worth a try, every time
                    memory.learn(keys[row], name, 0.0, rounds[row])
                federation.set_aside(server_round, replies.nodes[row], reason)

    def take_answers(self, server_round: int, name: str, answers: dict[int, Any]) -> set[int]:
        """Remember answers to a question; return those who gave a usable one."""
        federation = self._federation
        keys = federation.keys(answers)
        if name == SIMILARITY:  # whose range was checked: nobody else's answer matters
            told = dict(zip(keys, answers.values(), strict=True))
            federation.memory.learn_all(told, name, server_round)
            return set(answers)
        self._hear(keys, name, answers.values())
        usable = set()
        for key, (node, value) in zip(keys, answers.items(), strict=True):
            try:
                self._learn(key, name, value, server_round)
                usable.add(node)
            except BadReply as error:
                federation.set_aside(server_round, node, str(error))
        return usable

    def _hear(self, keys: Iterable[str], name: str, values: Iterable[Any]) -> None:
        """Learn the usual values from all claims, before any of them is judged."""
        if name in self._usual:
            self._usual[name].hear(keys, [value or 0.0 for value in values])

    def _learn(self, key: str, name: str, value: Any, told_in: int) -> None:
        """Remember a client's claim; :class:`BadReply` if it is implausible beside the others."""
        memory = self._federation.memory
        if isinstance(value, list):
            known = memory.values([key], name)
            if known.ndim == 2 and known.shape[1] != len(value):
                raise BadReply(f"{name} of {len(value)}, others send {known.shape[1]}")
        if name in self._usual:
            most = self._usual[name].most(math.inf)
            if value > most:  # unknown would be worth a try: what is made up is worth nothing
                memory.learn(key, name, 0.0, told_in)
                raise BadReply(f"{name} = {value:.4g}, more than {most:.4g}")
        memory.learn(key, name, value, told_in)

    def state_dict(self) -> dict[str, Any]:
        """Return the usual values."""
        return {name: usual.state_dict() for name, usual in self._usual.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, usual in self._usual.items():
            usual.load_state_dict(state[name])


@dataclass(frozen=True)
class CandidatePool:
    """Candidates and the nodes they are."""

    nodes: Sequence[int]
    candidates: Candidates
    was_asked: bool = False


class Pools:
    """Collects the candidates and what is known of them, after asking clients if necessary."""

    def __init__(
        self,
        federation: Federation,
        selector: ClientSelector,
        questions: Questions,
        rng: np.random.Generator,
    ) -> None:
        self._federation = federation
        self._selector = selector
        self._questions = questions
        self._rng = rng
        self._wanted = [name for name in ASKED if name in selector.needs]
        self.claims = CheckedClaims(federation, selector.needs, questions)
        self.update: dict[str, NDArray[Any]] | None = None  # the last change of the global model

    def gathered(
        self, nodes: Sequence[int], count: int, server_round: int, arrays: ArrayRecord, grid: Grid
    ) -> CandidatePool:
        """Return those to choose from: all, or those on the rule's shortlist who answer."""
        everyone = self._pool(nodes)
        if not self._wanted or not self._selector.asks():
            return everyone
        shortlist = self._selector.shortlist(everyone.candidates, count, self._rng)
        listed = [nodes[i] for i in shortlist]
        federation, most = self._federation, self._questions.ask_at_most
        for wants in self._wanted:
            if wants == HISTOGRAM:  # does not change: who has answered once is not asked again
                known = federation.memory.knows
                unknown = [n for n in listed if not known(federation.key(n), wants)]
                self._ask(grid, unknown, wants, server_round, arrays)
                listed = [n for n in listed if known(federation.key(n), wants)]
            elif not self._questions.ride:
                if most and len(listed) > most:
                    listed = [listed[i] for i in np.sort(self._oldest(listed, most))]
                usable = self._ask(grid, listed, wants, server_round, arrays)
                listed = [node for node in listed if node in usable]
        if not listed:
            _log.warning("round %d: nobody answered; the oldest train", server_round)
        return self._pool(listed, was_asked=not self._questions.ride)

    def _ask(
        self, grid: Grid, nodes: list[int], wants: str, server_round: int, arrays: ArrayRecord
    ) -> set[int]:
        if wants == SIMILARITY and self.update is None:
            # There is no update yet to be similar to: all are alike, and age or chance decides.
            answers: dict[int, Any] = dict.fromkeys(nodes, 0.0)
        else:
            reference = self.update if wants == SIMILARITY else None
            answers = self._questions.ask(
                self._federation, grid, nodes, wants, server_round, arrays, reference
            )
        return self.claims.take_answers(server_round, wants, answers)

    def _pool(self, nodes: Sequence[int], was_asked: bool = False) -> CandidatePool:
        keys = self._federation.keys(nodes)
        observations = self._federation.memory.observations(keys, self._selector.needs)
        if self._questions.ride:
            # Clients not heard from yet count as most worth asking.
            if SIMILARITY in observations:
                np.nan_to_num(observations[SIMILARITY], copy=False, nan=-1.0)
            if LOSS in observations:
                known = observations[LOSS][np.isfinite(observations[LOSS])]
                np.nan_to_num(observations[LOSS], copy=False, nan=known.max(initial=0.0))
        return CandidatePool(nodes, Candidates(keys, observations), was_asked)

    def filled_up(self, picked: list[int], nodes: Sequence[int], count: int) -> list[int]:
        """Add the oldest clients; those that cannot answer get a fair share of the places."""
        can_answer = self._federation.roster.can_answer
        mute = [n for n in nodes if not all(can_answer(n, name) for name in self._wanted)]
        places = min(count, round(count * len(mute) / len(nodes))) if mute else 0
        if places:
            by_age = [mute[i] for i in self._oldest(mute, places)]
            picked = [node for node in picked if node not in by_age][: count - places] + by_age
        taken = set(picked)
        rest = [n for n in nodes if n not in taken]
        if len(picked) >= count or not rest:
            return picked
        return picked + [rest[i] for i in self._oldest(rest, count - len(picked))]

    def _oldest(self, nodes: list[int], count: int) -> NDArray[np.int64]:
        """Return the places of those not chosen for longest."""
        ages = self._federation.memory.values(self._federation.keys(nodes), "age")
        return oldest(ages, count, self._rng)
