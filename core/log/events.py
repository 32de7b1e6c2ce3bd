"""What happens in a run, as records: ``events.jsonl`` holds one per line.

Writers and readers use the same class: a log has one meaning. A line of another version, or a
damaged one, is read as far as it makes sense: see :func:`read_event`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationError

from .event import EVENTS as EVENTS
from .event import Clients, Numbers, Round
from .event import Count as Count
from .event import Event as Event
from .event import JudgedBy as JudgedBy
from .event import Number as Number
from .event import ReplySeconds as ReplySeconds
from .event import Spread as Spread


class RunStarted(Event):
    """A run begins, or continues after a stop. The first of its metrics is the one that matters."""

    name = "run-started"
    strategy: str = ""
    layers: str = ""
    config: dict[str, Any] = {}
    metrics: Annotated[list[JudgedBy], Field(min_length=1)] = [
        JudgedBy(name="accuracy", share=True)
    ]

    def number(self, key: str) -> float | None:
        """Return a setting; None if it is no number, or none of a sensible size."""
        value = self.config.get(key)
        sensible = isinstance(value, int | float) and abs(value) < 1e15
        return value if sensible and not isinstance(value, bool) else None


class RunFinished(Event):
    """A run is over, however it ended."""

    name = "run-finished"
    reason: str = ""
    rounds: Round | None = None
    seconds: Number = None
    message: str = ""


class RoundFinished(Event):
    """A round is over, evaluation included; who is known but was not connected then."""

    name = "round-finished"
    seconds: Number = None
    away: list[str] | None = None


class RolledBack(Event):
    """A round failed again and again with every reply set aside: an earlier checkpoint counts."""

    name = "rolled-back"
    to: Count = 0  # the round of the checkpoint
    reason: str = ""


class CheckpointSaved(Event):
    """The run was saved."""

    name = "checkpoint"
    path: str = ""


class Selected(Event):
    """Who was chosen, with age and score where the rule has them."""

    name = "selected"
    of_data = frozenset({"scores", "other_scores"})
    phase: str = "train"
    available: Clients = 0
    chosen: list[str] = []
    seconds: Number = None
    ages: list[int] | None = None
    scores: Numbers | None = None
    # Those who could have been chosen instead, where they were asked and are not too many
    others: list[str] | None = None
    other_ages: list[int] | None = None
    other_scores: Numbers | None = None


class Exchanged(Event):
    """Messages of one kind were sent; the outcome."""

    name = "exchange"
    kind: str = "train"
    sent: Count = 0
    received: Count = 0
    failed: dict[str, str] = {}
    late: list[str] = []
    resent: Count = 0  # to clients that had lost the model they were known to hold
    bytes_spared: Count = 0  # of models that clients held, and were not sent
    bytes_down: Count = 0
    bytes_up: Count = 0
    seconds: Number = None
    simulated_seconds: Number = None
    reply_seconds: ReplySeconds | None = None
    deadline: Number = None  # where it is learned


class LateReplied(Event):
    """A training reply came after its round: it taught something, or counts in the next."""

    name = "late-reply"
    client: str = "?"
    asked_in: Round | None = None
    seconds: Number = None  # since the client was asked
    bytes_up: Count = 0


class Quarantined(Event):
    """A reply, or an answer, was set aside."""

    name = "quarantined"
    client: str = "?"
    reason: str = ""


class LeftOut(Event):
    """Clients that are connected and may not take part, by the run's own settings."""

    name = "left-out"
    count: Clients = 0
    clients: list[str] = []  # the first of them
    reason: str = ""


class Baseline(Event):
    """What a model would reach that always gives the same answer, by metric."""

    name = "baseline"
    what: str = ""
    metrics: Mapping[str, Number] = {}


class ClassesSpread(Event):
    """How many samples of each class the first clients hold, one row per client; in simulation."""

    name = "classes-spread"
    clients: Clients = 0
    counts: list[list[Count]] = []


class ClientNames(Event):
    """What people call the clients, by key: the owners of their data, where the data say."""

    name = "client-names"
    names: dict[str, str] = {}


class DataChecked(Event):
    """What of the data may mislead, found before the run."""

    name = "data-checked"
    findings: list[str] = []


class InputsScaled(Event):
    """Inputs are scaled, by the means and spreads that clients reported."""

    name = "inputs-scaled"
    clients: Clients = 0
    features: Count = 0


class Aggregated(Event):
    """A round's model was made."""

    name = "aggregated"
    metrics: Mapping[str, Number] = {}


class Contributed(Event):
    """Whose updates made the model of a round: one entry per client in each list."""

    name = "contributed"
    of_data = frozenset({"samples", "norms", "shares"})
    clients: list[str] = []
    bytes_up: list[Count] = []
    samples: Numbers = []
    norms: Numbers = []  # of its update
    shares: Numbers = []  # of the mean update, along it: all together are 1


class Evaluated(Event):
    """A model was tested, on the server's data or on the clients' own.

    On the server `metrics` are those of the run by name, and `cohorts` is the main one by cohort.
    On the clients `spread` is by metric, and `loss` is their mean.
    """

    name = "evaluated"
    where: str = "server"
    metrics: Mapping[str, Number] = {}
    loss: Number = None
    cohorts: Mapping[str, Number] | None = None
    clients: Clients | None = None
    untested: Count = 0  # clients too small to have held out test data
    spread: Mapping[str, Spread] | None = None

    def value(self, metric: str) -> float | None:
        """Return a metric's value, or the loss."""
        return self.metrics.get(metric, self.loss if metric == "loss" else None)

    @classmethod
    def upgraded(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read old logs, in which accuracy is the only metric."""
        new = dict(fields)
        if _is_number(fields.get("accuracy")):
            new.setdefault("metrics", {"accuracy": fields["accuracy"]})
        parts = {part: fields.get(f"accuracy-{part}") for part in _PARTS}
        known = {part: value for part, value in parts.items() if _is_number(value)}
        if known:
            new.setdefault("spread", {"accuracy": known})
        if "loss-mean" in fields:
            new.setdefault("loss", fields["loss-mean"])
        return new


_PARTS = ("mean", "variance", "worst-10", "best-10")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class FineTuned(Event):
    """The server trained the aggregated model on its own data."""

    name = "fine-tuned"
    loss: Number = None
    seconds: Number = None


class Decided(Event):
    """A part of the run was switched on or off by what was seen."""

    name = "decided"
    part: str = ""
    seen: str = ""
    decision: str = ""


class Examined(Event):
    """What a round showed of its clients, for a diagnosis: columns in the clients' order."""

    name = "examined"
    of_data = frozenset({"columns", "facts"})
    clients: list[str] = []
    columns: Mapping[str, Sequence[Any]] = {}
    facts: Mapping[str, Any] = {}  # what the server found by itself


class SparseUplinkUsed(Event):
    """Bytes of sparse updates, and of the models that they stand for."""

    name = "uplink"
    bytes_sparse: Count = 0
    bytes_dense: Count = 0


class PrivacySpent(Event):
    """The privacy spent so far, by the client asked most often and on average."""

    name = "privacy"
    delta: Number = None
    epsilon_most: Number = None
    epsilon_mean: Number = None
    budget: Number = None
    used_up: Count = 0  # clients that are not asked again


class CoresetsUsed(Event):
    """What clients trained on."""

    name = "coresets"
    of_data = frozenset({"labels", "clean_share"})
    chose: Count = 0
    without: Count = 0
    sizes: list[Count] = []
    samples: dict[str, Count] = {}
    labels: list[Count] = []
    clean_share: Number = None
    seconds: Number = None
    server_seconds: Number = None
    guidance_bytes: Count = 0


class StreamsStored(Event):
    """What clients keep of their streams."""

    name = "streams"
    of_data = frozenset({"stored", "classes"})
    clients: Clients = 0
    stored: list[Count] = []  # samples of each class
    arrived: Count = 0
    classes: Number = None


class StoragePlanned(Event):
    """Who is to store which label was planned."""

    name = "planned"
    of_data = frozenset({"stored", "holders", "class_weights", "quota"})
    clients: Clients = 0
    stored: list[Count] = []  # samples of each class
    holders: list[Count] = []  # clients that store each class
    class_weights: Numbers = []
    quota: dict[str, list[Count]] = {}  # by client, no more of them than can be drawn


class Guided(Event):
    """Bytes that a layer added to training messages."""

    name = "guidance"
    layer: str = ""
    bytes_down: Count = 0


class CohortsTrained(Event):
    """The cohorts after a round, and what their rule found."""

    name = "cohorts"
    of_data = frozenset({"heterogeneity"})
    members: dict[str, Count] = {}
    participants: dict[str, Count] = {}
    rounds: dict[str, Count] = {}
    moved: dict[str, str] = {}
    seconds: Number = None
    heterogeneity: Mapping[str, Number] | None = None
    reasons: dict[str, str] | None = None  # why a cohort was not split
    liars: list[str] | None = None
    barred: list[str] | None = None
    strange: list[str] | None = None
    converged: bool | None = None
    clusters: Count | None = None
    values_used: bool | None = None


class CohortFailed(Event):
    """A cohort's round failed; the others continued."""

    name = "cohort-failed"
    reason: str = ""


class CohortsEvaluated(Event):
    """How the model of each cohort does on its clients' own data: the mean of the main metric."""

    name = "cohorts-evaluated"
    means: Mapping[str, Number] = {}

    @classmethod
    def upgraded(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read old logs, in which accuracy is the only metric."""
        return {"means": fields["accuracy"], **fields} if "accuracy" in fields else fields


class Regrouped(Event):
    """New cohorts, each with the old ones that it comes from and their weights."""

    name = "regrouped"
    cohorts: dict[str, dict[str, float]] = {}


class SimilarityFound(Event):
    """How similar clients are to each other: no more of them than can be drawn."""

    name = "similarity"
    clients: list[str] = []
    matrix: Sequence[Numbers] = []
    labels: dict[str, str] = {}


class SupportsFetched(Event):
    """Clients whose supports were fetched since their signatures were alike."""

    name = "supports"
    signatures: Count = 0
    candidate_pairs: Count = 0
    pairs: Count = 0
    fetched: list[str] = []


class NeighboursFound(Event):
    """Whose models each client's own is mixed from."""

    name = "neighbours"
    graph: dict[str, list[str]] = {}
    values: bool = True


class AlignmentFound(Event):
    """How far similarities agree with the truth, in all and by client: added by an analysis."""

    name = "alignment"
    clients: list[str] = []
    scores: Mapping[str, Number] = {}
    tau_labels: Numbers = []
    tau_shapley: Numbers = []


def read_event(fields: Mapping[str, Any]) -> Event | None:
    """Return the event of a line; None if its kind is unknown. Senseless fields are left out."""
    name = fields.get("event")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    return None if kind is None else _read(kind, kind.upgraded(fields))


def _read(kind: type[Event], fields: Mapping[str, Any]) -> Event:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors()}
        return _read(kind, {k: v for k, v in fields.items() if k not in wrong})


def as_events(told: Iterable[Event | Mapping[str, Any]]) -> Iterator[Event]:
    """Yield the events of a log, or those given; unknown kinds are passed over."""
    for entry in told:
        event = entry if isinstance(entry, Event) else read_event(entry)
        if event is not None:
            yield event
