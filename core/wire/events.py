"""What happens in a run, as records: ``events.jsonl`` holds one a line.

Whoever writes an event and whoever reads it use the same class, so that a log has one meaning. A
line of another version, or a damaged one, is read as far as it makes sense: see :func:`read_event`.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError


def _finite(value: Any) -> Any:
    """Let a number that JSON cannot hold stand for an unknown one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Round = Annotated[int, Field(ge=0, le=10**9)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Clients = Annotated[int, Field(ge=0, le=10**7)]
Number = Annotated[float | None, BeforeValidator(_finite)]
Numbers = list[Number]


class Event(BaseModel):
    """Something that happened, in a round and perhaps in one cohort."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )
    name: ClassVar[str] = ""

    round: Round | None = None
    cohort: str | None = None
    time: Number = None  # seconds since the run began, or was resumed

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON can hold it; what is unknown is left out.

        >>> Quarantined(round=3, client="camera-7", reason="NaN").to_dict()
        {'event': 'quarantined', 'round': 3, 'client': 'camera-7', 'reason': 'NaN'}
        """
        fields = self.model_dump(by_alias=True, exclude_none=True)
        return {"event": self.name, **fields}


class RunStarted(Event):
    """A run begins, or goes on after a stop."""

    name = "run-started"
    strategy: str = ""
    layers: str = ""
    config: dict[str, Any] = {}


class RunFinished(Event):
    """A run is over, however it ended."""

    name = "run-finished"
    reason: str = ""
    rounds: Round | None = None
    seconds: Number = None
    message: str = ""


class RoundFinished(Event):
    """A round is over, evaluation included."""

    name = "round-finished"
    seconds: Number = None


class CheckpointSaved(Event):
    """The run was saved."""

    name = "checkpoint"
    path: str = ""


class Selected(Event):
    """Who was chosen, with age and score where the rule has them."""

    name = "selected"
    phase: str = "train"
    available: Clients = 0
    chosen: list[str] = []
    seconds: Number = None
    ages: list[int] | None = None
    scores: Numbers | None = None


class Exchanged(Event):
    """Messages of one kind were sent; what came of them."""

    name = "exchange"
    kind: str = "train"
    sent: Count = 0
    received: Count = 0
    failed: dict[str, str] = {}
    late: list[str] = []
    bytes_down: Count = 0
    bytes_up: Count = 0
    seconds: Number = None
    simulated_seconds: Number = None
    reply_seconds: "ReplySeconds | None" = None


class ReplySeconds(BaseModel):
    """How long replies took: in the middle, and those of the slowest clients."""

    median: float
    slowest: dict[str, float] = {}


class Quarantined(Event):
    """A reply, or an answer, was set aside."""

    name = "quarantined"
    client: str = "?"
    reason: str = ""


class Aggregated(Event):
    """A round's model was made."""

    name = "aggregated"
    metrics: dict[str, Number] = {}


class Evaluated(Event):
    """A model was tested, on the server's data or on the clients' own."""

    name = "evaluated"
    where: str = "server"
    accuracy: Number = None
    loss: Number = None
    cohorts: dict[str, Number] | None = None
    clients: Clients | None = None
    accuracy_mean: Number = None
    accuracy_variance: Number = None
    accuracy_worst_10: Number = None
    accuracy_best_10: Number = None
    loss_mean: Number = None


class FineTuned(Event):
    """The server trained the aggregated model on its own data."""

    name = "fine-tuned"
    loss: Number = None
    seconds: Number = None


class SparseUplinkUsed(Event):
    """Bytes of sparse updates, and of the models that they stand for."""

    name = "uplink"
    bytes_sparse: Count = 0
    bytes_dense: Count = 0


class PrivacySpent(Event):
    """What has been given away so far, by the client asked most often and on average."""

    name = "privacy"
    delta: Number = None
    epsilon_most: Number = None
    epsilon_mean: Number = None


class CoresetsUsed(Event):
    """What clients trained on."""

    name = "coresets"
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
    clients: Clients = 0
    stored: list[float] = []
    arrived: Count = 0
    classes: Number = None


class StoragePlanned(Event):
    """Who is to store which label was planned."""

    name = "planned"
    clients: Clients = 0
    stored: list[float] = []
    class_weights: Numbers = []


class Guided(Event):
    """Bytes that a layer added to training messages."""

    name = "guidance"
    layer: str = ""
    bytes_down: Count = 0


class CohortsTrained(Event):
    """The cohorts after a round, and what their rule found."""

    name = "cohorts"
    members: dict[str, Count] = {}
    participants: dict[str, Count] = {}
    rounds: dict[str, Count] = {}
    moved: dict[str, str] = {}
    seconds: Number = None
    heterogeneity: dict[str, Number] | None = None
    liars: list[str] | None = None
    barred: list[str] | None = None
    strange: list[str] | None = None
    converged: bool | None = None
    clusters: Count | None = None
    values_used: bool | None = None


class CohortFailed(Event):
    """A cohort's round failed; the others went on."""

    name = "cohort-failed"
    reason: str = ""


class CohortsEvaluated(Event):
    """How the model of each cohort does on its clients' own data."""

    name = "cohorts-evaluated"
    accuracy: dict[str, Number] = {}


class Regrouped(Event):
    """New cohorts, each with the old ones that it comes from and their weights."""

    name = "regrouped"
    cohorts: dict[str, dict[str, float]] = {}


class SimilarityFound(Event):
    """How similar clients are to each other: no more of them than can be drawn."""

    name = "similarity"
    clients: list[str] = []
    matrix: list[Numbers] = []
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


EVENTS: dict[str, type[Event]] = {kind.name: kind for kind in Event.__subclasses__()}


def read_event(fields: Mapping[str, Any]) -> Event | None:
    """Return the event of a line; None if its kind is unknown.

    Fields that make no sense are left out, unless the kind has no meaning without them.

    >>> read_event({"event": "evaluated", "round": 2, "accuracy": 0.5, "loss": "small"})
    Evaluated(round=2, cohort=None, time=None, where='server', accuracy=0.5, ...)
    >>> read_event({"event": "unheard-of"})
    """
    name = fields.get("event")
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        return None
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        wrong = {str(item["loc"][0]) for item in error.errors()}
        return kind.model_validate({k: v for k, v in fields.items() if k not in wrong})
