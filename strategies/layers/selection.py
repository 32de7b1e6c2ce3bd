"""Who trains: a selector picks clients, the strategy inside sees only those."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.log.events import Selected
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.ios import HASHES
from ...core.methods.selector import Selector, Summary
from ...core.tasks import load_task
from ...core.wire.arrays import from_record
from ...core.wire.keys import HISTOGRAM, LOSS, REFERENCE, SIMILARITY, UTILITY, WANTS
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ...core.wire.schemas import BadReply
from ...selectors.client_selectors.age import oldest
from ...selectors.client_selectors.base import Candidates, ClientSelector
from ..federation.client_memory import ClientMemory
from ..federation.grids import GridView, all_node_ids
from ..federation.observations import ASKED, readers
from ..federation.plausibility import UsualSize
from ..federation.survey import Survey, encode_update
from ..federation.virtual_nodes import kept_nodes
from .base import Layer

_log = logging.getLogger("forager")


_IMPLAUSIBLE = 20.0  # times the usual loss that a client may claim, once some are known
_VOICES = 6  # clients that say what is usual: losses and sizes of honest ones differ much
_MOST_PASSED_OVER = 200  # clients that were not chosen, in an event
_MOST_FAILURES = 0.8  # share of failures that more clients are asked for


class NobodyTrained(RuntimeError):
    """Too many rounds in a row found nobody to train."""


class Selection(Layer):
    """Narrow the grid to the clients that a selector chooses.

    A selector that wants to know something of the clients first has those on its shortlist asked
    (``summary_mode="query"``), or is given what they said in their last reply (``"piggyback"``).

    Parameters
    ----------
    inner : Strategy
        Samples everyone it can see (``fraction_train=1.0``, ``min_*_nodes=1``).
    selector : ClientSelector
        The rule.
    count : int (default: 0)
        Clients per round; 0 uses ``fraction`` instead.
    fraction : float (default: 1.0)
        Share of the connected clients that train in a round, at least one.
    fraction_evaluate : float (default: 0.0)
        Share that evaluates, drawn uniformly.
    over_commit : float (default: 0.0)
        Ask this share more than needed, so that the round need not wait for late ones.
    seed : int (default: 0)
        The choice repeats for the same seed and the same keys, on every runtime.
    survey : Survey, optional
        How clients are asked.
    summary_mode : str (default: "query")
        "query" or "piggyback".
    ask_at_most : int (default: 0)
        Ask at most this many clients per round, the oldest first; 0 for no limit.
    at_least : int (default: 1)
        If fewer are ready to train, those that rest are asked too.
    at_most : float (default: 0.0)
        A client is chosen at most this many times as often as the average; 0 for no limit.
    empty_rounds : int (default: 0)
        Rounds in a row without anybody to train after which to fail; 0 for any number. For Flower's
        own loop, which would go on with them to the end.
    hashes : int (default: 0)
        How many hashes a signature must be of; 0 if that is not known.
    """

    def __init__(
        self,
        inner: Strategy,
        selector: ClientSelector,
        *,
        count: int = 0,
        fraction: float = 1.0,
        fraction_evaluate: float = 0.0,
        over_commit: float = 0.0,
        seed: int = 0,
        survey: Survey | None = None,
        summary_mode: str = "query",
        ask_at_most: int = 0,
        at_least: int = 1,
        at_most: float = 0.0,
        empty_rounds: int = 0,
        hashes: int = 0,
    ) -> None:
        super().__init__(inner)
        self.selector = selector
        self.count = count
        self.fraction = fraction
        self.fraction_evaluate = fraction_evaluate
        self.over_commit = over_commit
        self.survey = survey or Survey()
        self.summary_mode = summary_mode
        self.ask_at_most = ask_at_most
        self.at_least = at_least
        self.at_most = at_most
        self.empty_rounds = empty_rounds
        self._empty = 0
        self._usual = {name: UsualSize(_IMPLAUSIBLE, _VOICES) for name in (LOSS, UTILITY)}
        self._readers = readers(selector.needs, self.survey.bounded, hashes)
        self._rng = np.random.default_rng([seed, 1])
        self._evaluate_rng = np.random.default_rng([seed, 2])
        self._short_of = 0
        self._wanted: int | None = None  # replies that are enough for the round
        self._before: dict[str, NDArray[Any]] = {}
        self._update: dict[str, NDArray[Any]] | None = None  # the last change of the global model

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Selection":
        """Return the layer that a config describes, around the rule of its client selector."""
        method = methods("client-selector")[config.client_selector]
        assert isinstance(method, Selector)
        own = next((config[kind] for kind in method.settings if kind.section == method.name), None)
        (count, fraction), summary = config.participation(), config[Summary]
        return cls(
            inner,
            load(method.core)(**(own.model_dump() if own is not None else {})),
            count=count,
            fraction=fraction,
            fraction_evaluate=config.fraction_evaluate,
            over_commit=config.round.over_commit,
            seed=config.seed,
            survey=Survey(
                bounded=summary.form == "unit",
                labels=load_task(config.task_spec()).num_classes,
            ),
            summary_mode=summary.mode,
            ask_at_most=summary.ask_at_most,
            at_least=config.round.min_replies,
            at_most=config.clients.at_most,
            hashes=HASHES,
        )

    @property
    def memory(self) -> ClientMemory:
        """What is known of the clients, by all layers and cohorts."""
        return self.federation.memory

    def use(self, selector: ClientSelector) -> None:
        """Choose by another rule from now on."""
        self.selector = selector
        self._readers = readers(selector.needs, self.survey.bounded, 0)

    def limit(self, count: int) -> None:
        """Let the next round train this many clients."""
        self.count = count

    def replies_wanted(self) -> int | None:
        """Return how many replies are enough: fewer than were asked for, with over-commitment."""
        return self._wanted

    def evaluates(self) -> bool:
        """Return whether clients are asked to evaluate at all."""
        return self.fraction_evaluate > 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients and let the strategy inside configure them."""
        started = perf_counter()
        available = self.federation.in_view(grid)
        wanted = self.count or max(1, round(self.fraction * len(available)))
        busy = len(self.federation.busy.intersection(available)) if self.federation.busy else 0
        if wanted <= busy > 0:  # as many train already
            return []
        wanted -= busy
        self._say_if_short(wanted, len(available))
        if len(available) <= busy:
            self._say_if_empty(server_round)
            return []
        nodes = self.federation.nodes(GridView(grid, available))
        asked = min(len(available) - busy, self._how_many(wanted, nodes, server_round))
        self._before = from_record(arrays)
        self.memory.begin(server_round)
        for usual in self._usual.values():
            usual.settle()
        eligible = self._eligible(nodes, asked, server_round)
        pool = self._candidates(eligible, asked, server_round, arrays, grid)
        picked = [pool.nodes[i] for i in self.selector.select(pool.candidates, asked, self._rng)]
        if pool.was_asked:
            picked = self._filled_up(picked, eligible, asked)
        self._wanted = min(wanted, len(picked))
        chosen = list(self.federation.keys(picked))
        others = self._passed_over(pool, chosen)
        self._note("train", server_round, len(nodes), chosen, perf_counter() - started, others)
        self.memory.round_passed(self.federation.keys(nodes), chosen, server_round)
        connected = all_node_ids(grid)
        if self.memory.crowded(len(connected)):
            self.memory.forget(set(self.federation.keys(connected)))
        if not chosen:
            self._say_if_empty(server_round)
            return []
        self._empty = 0
        if self.summary_mode == "piggyback" and SIMILARITY in self.selector.needs:
            config[WANTS] = SIMILARITY
            if self._update is not None:
                config[REFERENCE] = encode_update(self._update)
        view = GridView(grid, self.federation.roster.in_order(picked))
        return self._in_order(super().configure_train(server_round, arrays, config, view))

    def _how_many(self, wanted: int, nodes: Sequence[int], server_round: int) -> int:
        """Return how many to ask: with over-commitment as many as are likely to fail, or more."""
        # Not one more because 50 * 1.1 is slightly above 55
        asked = math.ceil(wanted * (1 + self.over_commit) - 1e-9)
        if not self.over_commit:
            return asked
        ready = self.federation.ready_to_train(nodes, server_round)
        if not ready:
            return asked
        fail = float(self.federation.times.failures(self.federation.keys(ready)).mean())
        return max(asked, math.ceil(wanted / (1 - min(fail, _MOST_FAILURES)) - 1e-9))

    def _eligible(self, nodes: Sequence[int], count: int, server_round: int) -> Sequence[int]:
        """Return those that may be chosen: they do not rest, whatever share takes part.

        With over-commitment they are expected in time, and no one is chosen too often, as far as
        enough others are there.
        """
        ready = self.federation.ready_to_train(nodes, server_round)
        eligible = ready if len(ready) >= min(count, self.at_least) else nodes
        if self.over_commit:
            times, key = self.federation.times, self.federation.key
            likely = [n for n in eligible if times.expected_in_time(key(n), server_round)]
            eligible = likely if len(likely) >= count else eligible
        if not self.at_most or len(eligible) <= count:
            return eligible
        picks = self.memory.picked(self.federation.keys(eligible))
        often = picks >= self.at_most * (1 + picks.mean())
        if not often.any() or len(eligible) - often.sum() < count:
            return eligible
        return kept_nodes(eligible, ~often)

    def _filled_up(self, picked: list[int], nodes: Sequence[int], count: int) -> list[int]:
        """Add those not chosen for longest where a question left too few to choose from.

        Clients that cannot answer, as those of another app, compete by their age alone: of a
        round's places they get the share that they have of the clients.
        """
        wanted = [name for name in ASKED if name in self.selector.needs]
        can_answer = self.federation.roster.can_answer
        mute = [n for n in nodes if not all(can_answer(n, name) for name in wanted)]
        places = min(count, round(count * len(mute) / len(nodes))) if mute else 0
        if places:
            ages = self.memory.values(self.federation.keys(mute), "age")
            by_age = [mute[i] for i in oldest(ages, places, self._rng)]
            picked = [node for node in picked if node not in by_age][: count - places] + by_age
        taken = set(picked)
        rest = [n for n in nodes if n not in taken]
        if len(picked) >= count or not rest:
            return picked
        ages = self.memory.values(self.federation.keys(rest), "age")
        return picked + [rest[i] for i in oldest(ages, count - len(picked), self._rng)]

    def _candidates(
        self, nodes: Sequence[int], count: int, server_round: int, arrays: ArrayRecord, grid: Grid
    ) -> "_Pool":
        """Return those to choose from and what is known of them, after asking if need be."""
        everyone = self._pool(nodes)
        wanted = [name for name in ASKED if name in self.selector.needs]
        if not wanted:
            return everyone
        shortlist = self.selector.shortlist(everyone.candidates, count, self._rng)
        listed = [nodes[i] for i in shortlist]
        for wants in wanted:
            if wants == HISTOGRAM:  # does not change: who has answered once is not asked again
                known = self.memory.knows
                unknown = [n for n in listed if not known(self.federation.key(n), wants)]
                self._ask(grid, unknown, wants, server_round, arrays)
                listed = [n for n in listed if known(self.federation.key(n), wants)]
            elif self.summary_mode == "query":
                if self.ask_at_most and len(listed) > self.ask_at_most:
                    ages = self.memory.values(self.federation.keys(listed), "age")
                    asked = np.sort(oldest(ages, self.ask_at_most, self._rng))
                    listed = [listed[i] for i in asked]
                answered = self._ask(grid, listed, wants, server_round, arrays)
                listed = [node for node in listed if node in answered]
        if not listed:
            _log.warning("round %d: nobody answered; the oldest train", server_round)
        return self._pool(listed, was_asked=self.summary_mode == "query")

    def _ask(
        self, grid: Grid, nodes: list[int], wants: str, server_round: int, arrays: ArrayRecord
    ) -> set[int]:
        """Ask clients and remember what they say; return those who gave a usable answer."""
        if wants == SIMILARITY and self._update is None:
            # There is no update yet to be similar to: all are alike, and age or chance decides.
            answers: dict[int, Any] = dict.fromkeys(nodes, 0.0)
        else:
            reference = self._update if wants == SIMILARITY else None
            answers = self.survey.ask(
                self.federation, grid, nodes, wants, server_round, arrays, reference
            )
        if wants == SIMILARITY:  # whose range was checked: nobody else's answer matters
            keys = self.federation.keys(answers)
            told = dict(zip(keys, answers.values(), strict=True))
            self.memory.learn_all(told, wants, server_round)
            return set(answers)
        self._hear(answers, wants, answers.values())
        usable = set()
        for node, value in answers.items():
            try:
                self._learn(node, wants, value, server_round)
                usable.add(node)
            except BadReply as error:
                self.federation.set_aside(server_round, node, str(error))
        return usable

    def _hear(self, nodes: Iterable[int], name: str, values: Iterable[Any]) -> None:
        """Learn what is usual, from all claims before any of them is judged."""
        if name in self._usual:
            told = [value or 0.0 for value in values]
            self._usual[name].hear(self.federation.keys(nodes), told)

    def _learn(self, node: int, name: str, value: Any, told_in: int) -> None:
        """Remember what a client says; :class:`BadReply` if it cannot be, against the others."""
        key = self.federation.key(node)
        if isinstance(value, list):
            known = self.memory.values([key], name)
            if known.ndim == 2 and known.shape[1] != len(value):
                raise BadReply(f"{name} of {len(value)}, others send {known.shape[1]}")
        if name in self._usual:
            most = self._usual[name].most(math.inf)
            if value > most:  # unknown would be worth a try: what is made up is worth nothing
                self.memory.learn(key, name, 0.0, told_in)
                raise BadReply(f"{name} = {value:.4g}, more than {most:.4g}")
        self.memory.learn(key, name, value, told_in)

    def _pool(self, nodes: Sequence[int], was_asked: bool = False) -> "_Pool":
        keys = self.federation.keys(nodes)
        observations = self.memory.observations(keys, self.selector.needs)
        if self.summary_mode == "piggyback":
            # Clients not heard from yet count as most worth asking.
            if SIMILARITY in observations:
                np.nan_to_num(observations[SIMILARITY], copy=False, nan=-1.0)
            if LOSS in observations:
                known = observations[LOSS][np.isfinite(observations[LOSS])]
                largest = known.max(initial=0.0)
                np.nan_to_num(observations[LOSS], copy=False, nan=largest)
        return _Pool(nodes, Candidates(keys, observations), was_asked)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients that evaluate."""
        if not self.fraction_evaluate:
            return []
        started = perf_counter()
        nodes = self.federation.nodes(grid)  # with those that came while others trained
        if not nodes:
            return []
        wanted = max(1, round(self.fraction_evaluate * len(nodes)))
        nodes = self.federation.awake(nodes, server_round) or nodes
        count = min(wanted, len(nodes))
        positions = np.sort(self._evaluate_rng.choice(len(nodes), count, replace=False))
        view = GridView(grid, [nodes[i] for i in positions])
        chosen = list(self.federation.keys(view.node_ids))
        self._note("evaluate", server_round, len(nodes), chosen, perf_counter() - started)
        return self._in_order(super().configure_evaluate(server_round, arrays, config, view))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn from those who answered, then aggregate and remember the change."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None and SIMILARITY in self.selector.needs:
            after = from_record(arrays)
            self._update = {name: after[name] - self._before[name] for name in self._before}
        return arrays, metrics

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Learn the names of clients, and what training replies say of them."""
        self.federation.roster.meet(replies)
        self._learn_from(server_round, replies)
        return replies

    def hear(self, server_round: int, replies: Replies) -> None:
        """Learn what late replies say of their clients, unless something newer is known.

        Their ages and the number of times that they were chosen stay as they are. CosAge's age
        grows "every round in which the client is not selected" (section III): it restarted when
        the client was chosen, and does not depend on when, or whether, an update is received.
        """
        self._learn_from(server_round, replies)
        super().hear(server_round, replies)

    def _learn_from(self, server_round: int, replies: Replies) -> None:
        """Remember observations; a reply is still trained with if one makes no sense."""
        if not self._readers:
            return
        assigned = self.federation.ledger.of(replies)
        rounds = [server_round if each is None else each.round for each in assigned]
        keys = self.federation.keys(replies.nodes)
        for name, read in self._readers.items():
            values, wrong = read(replies)
            self._hear(replies.nodes, name, values)
            for row, value in enumerate(values):
                newer = self.memory.told_in(keys[row], name) > rounds[row]
                if value is None or row in wrong or newer:
                    continue
                try:
                    self._learn(replies.nodes[row], name, value, rounds[row])
                except BadReply as error:
                    wrong[row] = str(error)
            for row, reason in wrong.items():
                if name == UTILITY:  # unknown would be worth a try, every time
                    self.memory.learn(keys[row], name, 0.0, rounds[row])
                self.federation.set_aside(server_round, replies.nodes[row], reason)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Learn who answered, then aggregate."""

        def meet(table: Replies) -> Replies:
            self.federation.roster.meet(table)
            return table

        stream = ReplyStream(tables_in(replies)).through(meet)
        return super().aggregate_evaluate(server_round, stream)

    def _in_order(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Undo the shuffling of Flower's sampling: sums are taken in the same order every time."""
        requests = Requests.of(messages)
        if requests is None:
            return []
        rows = {node: row for row, node in enumerate(requests.nodes)}
        ordered = [rows[node] for node in self.federation.roster.in_order(rows)]
        return requests if ordered == sorted(ordered) else requests.select(ordered)

    def _say_if_empty(self, server_round: int) -> None:
        """Say that a round trains nobody, and fail if that has happened too often in a row."""
        self._empty += 1
        _log.warning("round %d: no client is available to train", server_round)
        if self.empty_rounds and self._empty >= self.empty_rounds:
            raise NobodyTrained(f"{self._empty} rounds in a row trained nobody")

    def _say_if_short(self, wanted: int, available: int) -> None:
        if available < wanted != self._short_of:
            self._short_of = wanted
            _log.info(
                "%d clients per round were asked for, %d are available: training those",
                wanted,
                available,
            )

    def _passed_over(self, pool: "_Pool", chosen: list[str]) -> list[str] | None:
        """Return who was compared with the chosen by similarity, for the report; None if many."""
        many = len(pool.candidates) > len(chosen) + _MOST_PASSED_OVER
        if many or SIMILARITY not in self.selector.needs or self._update is None:
            return None
        taken = set(chosen)
        return [key for key in pool.candidates.keys if key not in taken]

    def _note(
        self,
        phase: str,
        server_round: int,
        available: int,
        chosen: list[str],
        seconds: float,
        others: list[str] | None = None,
    ) -> None:
        ages = scores = None
        if phase == "train":
            ages = self.memory.ages(chosen)
            for name in sorted(self.selector.needs & {SIMILARITY, LOSS}):
                scores = self.memory.values(chosen, name).tolist()
        self.federation.note(
            Selected(
                round=server_round,
                phase=phase,
                available=available,
                chosen=chosen,
                seconds=seconds,
                ages=ages,
                scores=scores,
                others=others,
                other_ages=None if others is None else self.memory.ages(others),
                other_scores=None
                if others is None
                else np.round(self.memory.values(others, SIMILARITY), 6).tolist(),
            )
        )

    def own_state(self) -> dict[str, Any]:
        """Return the state of the generators, of the selector, and what is known of the clients."""
        return {
            "rng": self._rng.bit_generator.state,
            "evaluate-rng": self._evaluate_rng.bit_generator.state,
            "selector": self.selector.state_dict(),
            "update": self._update,
            "usual": {name: usual.state() for name, usual in self._usual.items()},
        }

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self._rng.bit_generator.state = state["rng"]
        self._evaluate_rng.bit_generator.state = state["evaluate-rng"]
        self.selector.load_state_dict(state["selector"])
        self._update = state["update"]
        for name, usual in self._usual.items():
            usual.load(state["usual"][name])


@dataclass(frozen=True)
class _Pool:
    """Candidates and the nodes they are."""

    nodes: Sequence[int]
    candidates: Candidates
    was_asked: bool = False
