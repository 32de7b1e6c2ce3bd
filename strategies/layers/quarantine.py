"""Set bad replies aside so that the round continues with the rest."""

import logging
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import Decided
from ...core.methods.catalogue import chosen
from ...core.wire.keys import LOSS, NUM_EXAMPLES, PLAN
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.schemas import MOST_SAMPLES
from ..aggregation.metric_spread import untested
from ..federation.ledger import Assignment
from ..federation.plausibility import UsualSize
from ..server_samples import ServerSamples
from .base import Layer, Outcome
from .contributions import Contributions
from .sent_model import Norms, SentModel, impossible, misfits, shorten, update_norms

_FIRST = 5  # replies at least that say together what is usual where nothing is known
_MOST_HELD = 2**28  # bytes of replies that wait for the others then
_MOST_METRICS = 64  # names in a reply: all that are common go to the log
_UNKNOWN = 100.0  # times the model's norm that an update may have then

_log = logging.getLogger("forager")

_Measured = tuple[Replies, dict[int, str], Norms]  # with what is wrong with rows


class MostlyOutliers(RuntimeError):
    """Most replies of a round are far from what was usual before."""


class QuarantineLayer(Layer):
    """Check every reply against the message that it answers.

    It sets aside unsolicited and second replies; records, names, shapes or types other than those
    sent; values that are not finite; example counts below 1 (streams may report fractions) or above
    ``count_factor`` times the usual; and updates longer than ``norm_factor`` times the usual
    (:class:`UsualSize`). Each case is logged and counted against its client.

    A client with many samples takes many steps: if its samples explain the norm, the update is
    shortened to the limit instead. A lie about samples therefore gains nothing: any client may send
    an update of that length.
    """

    remembers = ("_norms", "_counts", "federation")

    def __init__(
        self,
        inner: Strategy,
        *,
        norm_factor: float = 5.0,
        count_factor: float = 100.0,
        weight_factor: float = 0.0,  # times the usual samples that a client counts for; 0: any
        min_replies: int = 1,  # sound ones, without which nothing is aggregated
    ) -> None:
        super().__init__(inner)
        self.weight_factor = weight_factor
        self.min_replies = min_replies
        self._norms = UsualSize(norm_factor)
        self._counts = UsualSize(count_factor)
        self._models: dict[int, tuple[ArrayRecord, SentModel]] = {}  # of this round, by record
        self._judged, self._outliers = 0, 0  # replies of this round
        self._said: set[str] = set()  # what is done with large clients, once
        self.contributions = Contributions()

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "QuarantineLayer":
        """Return the layer that a config describes."""
        vary = math.prod(method.norms_vary for method in chosen(config.axes()))
        layer = cls(
            inner,
            norm_factor=config.quarantine.norm_factor * vary,
            count_factor=config.quarantine.count_factor,
            weight_factor=config.quarantine.weight_factor,
            min_replies=config.round.min_replies,
        )
        layer.contributions.alike = config.weighting == "uniform"
        if config.leave_one_out:
            layer.contributions.loss = ServerSamples(config, "leave-one-out = true").loss
        return layer

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate the sound replies if enough; :class:`MostlyOutliers` if most are unusual."""
        self._models, self._judged, self._outliers = {}, 0, 0
        self.contributions.clear()
        self._norms.settle()
        self._counts.settle()
        tables = (self._measured(table) for table in tables_in(replies))
        sound: Iterable[Replies] = iter(())
        if not (self._norms.settled and self._counts.settled):
            # Nobody is judged before all have spoken, and layers inside see all claims at once.
            first = _held(tables)
            passed = [self._accepted(server_round, *first.pop(0)) for _ in range(len(first))]
            sound = [Replies.joined(passed)] if any(map(len, passed)) else []
        rest = (self._accepted(server_round, *measured) for measured in tables)
        enough, sound = _peeked(filter(len, chain(sound, rest)), self.min_replies)
        result: Outcome = None, None
        if sum(map(len, enough)) >= self.min_replies:
            result = super().aggregate_train(server_round, ReplyStream(sound))
        self.contributions.note(self.federation, server_round)
        if 2 * self._outliers > self._judged:
            raise MostlyOutliers(
                f"{self._outliers} of {self._judged} replies are far from what was usual before; "
                f"{self.federation.last_refusal}"
            )
        return result

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the sound replies of those that have test data."""

        def check(table: Replies) -> Replies:
            table = table.without(untested(table))
            wrong = self._asked(table) | table.faults
            _drop_undefined(table)
            wrong |= unsound_metrics(table, skip=wrong)
            return self.federation.sound(server_round, table, wrong)

        sound = ReplyStream(tables_in(replies)).through(check)
        return super().aggregate_evaluate(server_round, sound)

    def hear(self, server_round: int, replies: Replies) -> None:
        """Check late replies like any other; usual values are learned from the others alone."""
        wrong, norms = self._checked(replies)
        outliers, limits = self._outlying(replies, wrong, norms)
        late = {row: f"late: {reason}" for row, reason in (wrong | outliers).items()}
        self._shorten(server_round, replies, norms, limits)
        super().hear(server_round, self.federation.sound(server_round, replies, late))

    def _measured(self, table: Replies) -> "_Measured":
        """Check all that needs no comparison with others; hear what the sound rows claim."""
        wrong, norms = self._checked(table)
        rows = [row for row in range(len(table)) if row not in wrong]
        keys = self.federation.keys([table.nodes[row] for row in rows])
        self._norms.hear(keys, norms[rows].tolist())
        self._counts.hear(keys, [float(table.metrics[NUM_EXAMPLES][row]) for row in rows])
        return table, wrong, norms

    def _accepted(
        self, server_round: int, table: Replies, wrong: dict[int, str], norms: Norms
    ) -> Replies:
        """Return the rows of a table that are sound and not far from what is usual."""
        outliers, limits = self._outlying(table, wrong, norms)
        self._shorten(server_round, table, norms, limits)
        self._judged += len(table) - len(wrong)
        self._outliers += len(outliers)
        sound = self.federation.sound(server_round, table, wrong | outliers)
        heaviest = self.weight_factor * self._counts.median
        if len(sound) and 0 < heaviest < max(sound.metrics[NUM_EXAMPLES]):
            counts = sound.metrics[NUM_EXAMPLES]
            over = [row for row, count in enumerate(counts) if count > heaviest]
            self._say(server_round, sound, over, "weight")
            lighter = [min(count, heaviest) for count in counts]
            sound.set_metric(NUM_EXAMPLES, lighter)
        if len(sound):
            asked = [each for each in self.federation.ledger.of(sound) if each is not None]
            models = [sent.arrays for each in asked if (sent := self._sent(each)) is not None]
            here = [row for row in range(len(table)) if row not in wrong and row not in outliers]
            keys = self.federation.keys(sound.nodes)
            self.contributions.add(sound, keys, asked, models, norms[here])
        return sound

    def _outlying(
        self, table: Replies, wrong: Container[int], norms: Norms
    ) -> tuple[dict[int, str], dict[int, float]]:
        """Return the rows that claim many times what is usual, and what; norms to shorten to."""
        outliers: dict[int, str] = {}
        limits: dict[int, float] = {}
        rows = [row for row in range(len(table)) if row not in wrong]
        counts = table.metrics.get(NUM_EXAMPLES, ())
        few = not self._counts.exceeded(counts[row] for row in rows)
        if few and not self._norms.exceeded(norms[rows]):
            return outliers, limits
        most, usual = self._counts.most(MOST_SAMPLES), self._norms.median
        longest = self._norms.most(math.inf)
        # As many times the usual samples explain as many times the usual norm
        explained = self._norms.factor * self._counts.median or math.inf
        assigned = self.federation.ledger.of(table)
        for row in rows:
            model, examples = self._sent(assigned[row]), counts[row]
            # Where updates are next to nothing, so is what is usual of them
            limit = longest if model is not None and usual > 1e-9 * model.norm else math.inf
            if examples > most:
                told = f"{NUM_EXAMPLES} = {examples:.4g}, more than {most:.4g}"
                outliers[row] = f"{told} (quarantine.count-factor)"
            elif norms[row] > limit * max(1.0, examples / explained):
                told = f"update of norm {norms[row]:.3g}, more than {limit:.3g}"
                outliers[row] = f"{told} (quarantine.norm-factor)"
            elif norms[row] > limit:
                limits[row] = limit
        return outliers, limits

    def _shorten(
        self, server_round: int, table: Replies, norms: Norms, limits: Mapping[int, float]
    ) -> None:
        """Shorten the updates of some rows to these norms."""
        if limits:
            sent = [self._sent(each) for each in self.federation.ledger.of(table)]
            shorten(table, sent, norms, limits)
            self._say(server_round, table, list(limits), "norm")

    def _say(self, server_round: int, table: Replies, rows: Sequence[int], what: str) -> None:
        """Log once how clients with many samples are treated, and name the largest."""
        if what in self._said:
            return
        self._said.add(what)
        counts = table.metrics[NUM_EXAMPLES]
        row = max(rows, key=lambda row: counts[row])
        name = self.federation.roster.called(self.federation.key(table.nodes[row]))
        times = counts[row] / self._counts.median
        seen = f"client {name} has {times:.2g} times the usual number of samples"
        done = {
            "norm": "the updates of such clients are shortened to quarantine.norm-factor times "
            "the usual norm",
            "weight": f"such clients count for {self.weight_factor:g} times the usual number "
            "(quarantine.weight-factor)",
        }
        _log.warning("%s; %s", seen, done[what])
        event = Decided(round=server_round, part="large clients", seen=seen, decision=done[what])
        self.federation.note(event)

    def _asked(self, table: Replies) -> dict[int, str]:
        """Return the rows that nobody asked for, or that answer a second time."""
        wrong = {}
        for row, assignment in enumerate(self.federation.ledger.of(table)):
            if assignment is None or assignment.read or assignment.model is None:
                wrong[row] = "it was not requested, or it is a second reply"
            else:
                assignment.read = True
        return wrong

    def _checked(self, table: Replies) -> tuple[dict[int, str], Norms]:
        """Return the rows that are not sound, and why; and the norm of every update."""
        norms = np.zeros(len(table))
        wrong = table.faults | self._asked(table)
        records = self.reply_records()
        # A stream counts by its samples a round, on average.
        needs, whole = self.metrics_needed(), PLAN not in records
        wrong |= unsound_metrics(table, needs, skip=wrong, whole=whole)
        if len(wrong) == len(table):
            return wrong, norms
        sent = [
            None if row in wrong else self._sent(assignment)
            for row, assignment in enumerate(self.federation.ledger.of(table))
        ]
        # Layers inside check the records that they asked for.
        wrong = misfits(table, sent, records) | wrong
        if len(wrong) == len(table):
            return wrong, norms
        norms = update_norms(table, sent)
        for row in np.flatnonzero(~np.isfinite(norms)).tolist():
            wrong.setdefault(row, "values that are not finite, or too large to square")
        for row, model in enumerate(sent):  # whatever others do: all may diverge
            most = math.inf if model is None else _UNKNOWN * max(model.norm, 1.0)
            if norms[row] > most:
                wrong.setdefault(row, f"update of norm {norms[row]:.3g}, more than {most:.3g}")
        return impossible(table, sent) | wrong, norms

    def _sent(self, assignment: Assignment | None) -> "SentModel | None":
        record = None if assignment is None else assignment.model
        if record is None:
            return None
        if id(record) not in self._models:  # most clients are sent the same record
            self._models[id(record)] = record, SentModel(record)
        return self._models[id(record)][1]


def _held(tables: Iterator["_Measured"]) -> list["_Measured"]:
    """Return the first tables: all, or as many as memory allows, but at least a few rows."""
    held: list[_Measured] = []
    rows = size = 0
    while (rows < _FIRST or size < _MOST_HELD) and (measured := next(tables, None)) is not None:
        held.append(measured)
        rows += len(measured[0])
        size += sum(measured[0].row_bytes())
    return held


def _peeked(tables: Iterable[Replies], rows: int) -> tuple[list[Replies], Iterable[Replies]]:
    """Return the first tables, of at least as many rows, and all again; the first are let go."""
    remaining, first = iter(tables), list[Replies]()
    while sum(map(len, first)) < rows:
        table = next(remaining, None)
        if table is None:
            break
        first.append(table)
    return first, chain((first.pop(0) for _ in range(len(first))), remaining)


def _drop_undefined(table: Replies) -> None:
    """Forget metrics that are not finite: R2 of one sample, say; a loss must be."""
    for name, values in list(table.metrics.items()):
        if name in (NUM_EXAMPLES, LOSS):
            continue
        undefined = [type(value) is float and not math.isfinite(value) for value in values]
        if any(undefined):
            pairs = zip(values, undefined, strict=True)
            table.set_metric(name, [None if gone else value for value, gone in pairs])


def unsound_metrics(
    table: Replies, needs: Sequence[str] = (), skip: Container[int] = (), whole: bool = True
) -> dict[int, str]:
    """Return the rows whose example count or metrics are not sound, and why."""
    if _all_sound(table, needs, whole):
        return {}
    wrong = {}
    for row in range(len(table)):
        if row not in skip:
            metrics = {n: c[row] for n, c in table.metrics.items() if c[row] is not None}
            reason = _unsound(metrics, needs, whole)
            if reason:
                wrong[row] = reason
    return wrong


def _all_sound(table: Replies, needs: Sequence[str], whole: bool) -> bool:
    """Return whether all metrics are plain, sound numbers."""
    columns = table.metrics
    if NUM_EXAMPLES not in columns or not all(name in columns for name in needs):
        return False
    if len(columns) > _MOST_METRICS:
        return False
    try:
        values = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
    except (TypeError, ValueError):  # a row has none, or a list, or what is not a number
        return False
    counts = values[NUM_EXAMPLES]
    return bool(
        all(array.ndim == 1 and np.isfinite(array).all() for array in values.values())
        and ((counts > 0) & (counts <= MOST_SAMPLES)).all()
        and not (whole and (counts % 1).any())
        and all((values[name] >= 0).all() for name in needs)
    )


def _unsound(metrics: Mapping[str, Any], needs: Sequence[str], whole: bool) -> str:
    """Return the fault in the metrics of one client; empty if there is none."""
    examples = metrics.get(NUM_EXAMPLES)
    if not isinstance(examples, int | float) or not 0 < examples <= MOST_SAMPLES:
        return f"{NUM_EXAMPLES} = {examples!r} is not a positive number of samples"
    if whole and examples % 1:
        return f"{NUM_EXAMPLES} = {examples!r} is not a whole number"
    if len(metrics) > _MOST_METRICS:
        return f"{len(metrics)} metrics, more than {_MOST_METRICS}"
    for name in needs:
        if not isinstance(metrics.get(name), int | float) or metrics[name] < 0:
            return f"{name} = {metrics.get(name)!r} is not a number of at least 0"
    for name, value in metrics.items():
        values = value if isinstance(value, list) else [value]
        if not all(map(math.isfinite, values)):
            return f"metric {name} is not finite"
    return ""
