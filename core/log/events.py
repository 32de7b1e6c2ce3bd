"""The events of a run: ``events.jsonl`` holds one per line.

Writers and readers use the same classes. From a damaged line, or one of another version, only valid
fields are read: see :func:`read_event`.
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


class RunStarted(Event, name="run-started"):
    """A run begins, or continues after a stop. The first of its metrics is the main one."""

    strategy: str = ""
    layers: str = ""
    config: dict[str, Any] = {}
    metrics: Annotated[list[JudgedBy], Field(min_length=1)] = [
        JudgedBy(name="accuracy", share=True)
    ]

    def number(self, key: str) -> float | None:
        """Return a setting; None if it is not a number of a sensible size."""
        value = self.config.get(key)
        sensible = isinstance(value, int | float) and abs(value) < 1e15
        return value if sensible and not isinstance(value, bool) else None


class RunFinished(Event, name="run-finished"):
    """A run is over, however it ended."""

    reason: str = ""
    rounds: Round | None = None
    seconds: Number = None
    message: str = ""


class RoundFinished(Event, name="round-finished"):
    """A round ended, evaluation included. ``away``: known clients that were not connected then."""

    seconds: Number = None
    away: list[str] | None = None


class RolledBack(Event, name="rolled-back"):
    """A round failed several times with every reply set aside; the run returned to a checkpoint."""

    to: Count = 0  # the round of the checkpoint
    reason: str = ""


class CheckpointSaved(Event, name="checkpoint"):
    """The run was saved."""

    path: str = ""


class Selected(Event, name="selected"):
    """Which clients were chosen, with their ages and scores if the rule uses them."""

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


class Exchanged(Event, name="exchange"):
    """Messages of one kind were sent, and these replies came."""

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


class LateReplied(Event, name="late-reply"):
    """A training reply came after its round: the server learns from it, or aggregates it next."""

    client: str = "?"
    asked_in: Round | None = None
    seconds: Number = None  # since the client was asked
    bytes_up: Count = 0


class Quarantined(Event, name="quarantined"):
    """A reply, or an answer, was set aside."""

    client: str = "?"
    reason: str = ""


class LeftOut(Event, name="left-out"):
    """Connected clients that the settings of the run exclude."""

    count: Clients = 0
    clients: list[str] = []  # the first of them
    reason: str = ""


class Baseline(Event, name="baseline"):
    """What a constant prediction would reach, by metric."""

    what: str = ""
    metrics: Mapping[str, Number] = {}


class ClassesSpread(Event, name="classes-spread"):
    """Samples of each class that the first clients hold, one row per client; only in simulation."""

    clients: Clients = 0
    counts: list[list[Count]] = []


class ClientNames(Event, name="client-names"):
    """Readable names of clients by key: the owners of their data, if the data name them."""

    names: dict[str, str] = {}


class DataChecked(Event, name="data-checked"):
    """What the data check found before the run."""

    findings: list[str] = []


class InputsScaled(Event, name="inputs-scaled"):
    """Inputs are scaled by the means and standard deviations that clients reported."""

    clients: Clients = 0
    features: Count = 0


class Aggregated(Event, name="aggregated"):
    """The replies of a round were aggregated into a new model."""

    metrics: Mapping[str, Number] = {}


class Contributed(Event, name="contributed"):
    """Clients whose updates were aggregated in a round: one entry per client in each list."""

    of_data = frozenset({"samples", "norms", "shares", "values"})
    clients: list[str] = []
    bytes_up: list[Count] = []
    samples: Numbers = []
    norms: Numbers = []  # of the update
    shares: Numbers = []  # of the mean update, in its direction; they add up to 1
    values: Numbers = []  # loss on the server's data without the update, minus the loss with it


class Evaluated(Event, name="evaluated"):
    """A model was tested: on the server (``metrics``, ``cohorts``) or on clients (``spread``).

    On clients, ``loss`` is the mean over them.
    """

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


class FineTuned(Event, name="fine-tuned"):
    """The server trained the aggregated model on its own data."""

    loss: Number = None
    seconds: Number = None


class Decided(Event, name="decided"):
    """The run switched a part on or off, because of what it saw."""

    part: str = ""
    seen: str = ""
    decision: str = ""


class Examined(Event, name="examined"):
    """What a round showed about its clients, for a diagnosis: columns in the order of clients."""

    of_data = frozenset({"columns", "facts"})
    clients: list[str] = []
    columns: Mapping[str, Sequence[Any]] = {}
    facts: Mapping[str, Any] = {}  # what the server found by itself


class SparseUplinkUsed(Event, name="uplink"):
    """Bytes of sparse updates, and of the models that they replace."""

    of_data = frozenset({"advice"})
    bytes_sparse: Count = 0
    bytes_dense: Count = 0
    advice: str = ""  # where the updates do not suit the uplink, once


class PrivacySpent(Event, name="privacy"):
    """Epsilon spent so far: by the client asked most often, and on average."""

    delta: Number = None
    epsilon_most: Number = None
    epsilon_mean: Number = None
    budget: Number = None
    used_up: Count = 0  # clients that are not asked again


class CoresetsUsed(Event, name="coresets"):
    """The coresets that clients trained on."""

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


class StreamsStored(Event, name="streams"):
    """The samples of their streams that clients store."""

    of_data = frozenset({"stored", "classes"})
    clients: Clients = 0
    stored: list[Count] = []  # samples of each class
    arrived: Count = 0
    classes: Number = None


class StoragePlanned(Event, name="planned"):
    """A new plan: which clients store which labels."""

    of_data = frozenset({"stored", "holders", "class_weights", "quota"})
    clients: Clients = 0
    stored: list[Count] = []  # samples of each class
    holders: list[Count] = []  # clients that store each class
    class_weights: Numbers = []
    quota: dict[str, list[Count]] = {}  # by client, no more of them than can be drawn


class Guided(Event, name="guidance"):
    """Bytes that a layer added to training messages."""

    layer: str = ""
    bytes_down: Count = 0


class CohortsTrained(Event, name="cohorts"):
    """The cohorts after a round, and what their rule found."""

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


class CohortFailed(Event, name="cohort-failed"):
    """A cohort's round failed; the others continued."""

    reason: str = ""


class CohortsEvaluated(Event, name="cohorts-evaluated"):
    """The main metric of each cohort's model on its clients' own data, on average."""

    means: Mapping[str, Number] = {}

    @classmethod
    def upgraded(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read old logs, in which accuracy is the only metric."""
        return {"means": fields["accuracy"], **fields} if "accuracy" in fields else fields


class Regrouped(Event, name="regrouped"):
    """New cohorts, each with the old cohorts that it was made from and their weights."""

    cohorts: dict[str, dict[str, float]] = {}


class SimilarityFound(Event, name="similarity"):
    """The similarity of clients, of at most as many as a picture can show."""

    clients: list[str] = []
    matrix: Sequence[Numbers] = []
    labels: dict[str, str] = {}


class SupportsFetched(Event, name="supports"):
    """Clients whose supports were fetched because their signatures agree."""

    signatures: Count = 0
    candidate_pairs: Count = 0
    pairs: Count = 0
    fetched: list[str] = []


class NeighboursFound(Event, name="neighbours"):
    """The clients whose models are mixed into the model of each client."""

    graph: dict[str, list[str]] = {}
    values: bool = True


class AlignmentFound(Event, name="alignment"):
    """How well similarities agree with the truth, in total and by client; added by an analysis."""

    clients: list[str] = []
    scores: Mapping[str, Number] = {}
    tau_labels: Numbers = []
    tau_shapley: Numbers = []


def read_event(fields: Mapping[str, Any]) -> Event | None:
    """Return the event of a line; None if its kind is unknown. Invalid fields are omitted.

    >>> read_event({"event": "round-finished", "round": 3, "seconds": "?"})
    RoundFinished(round=3, cohort=None, time=None, seconds=None, away=None)
    """
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
    """Return events from the lines of a log, or as they are; unknown kinds are skipped."""
    found = (entry if isinstance(entry, Event) else read_event(entry) for entry in told)
    return (event for event in found if event is not None)
