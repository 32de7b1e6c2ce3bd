"""What a comparison leaves and ``--json`` prints, for ``forager compare`` and the arena."""

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ....core.config import Scalar
from ....core.tasks.metrics import Metric
from ..measures import SELECTING
from ..statistics import Estimate, Number

BETTER, EQUAL, OPEN, WORSE = "better", "no difference", "not decided", "worse"
# What a strategy cost at its own end: title and column of a run's last row
COSTS = {
    "bytes": "bytes",
    "work": "client-seconds",
    "simulated seconds": "simulated-seconds",
    "bytes for selecting": "bytes-selecting",
    "seconds for selecting": SELECTING,
}


class _Told(BaseModel):
    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )


class Gap(_Told):
    """A difference from the best strategy: paired over seeds, with its 95 % interval."""

    mean: Number
    low: Number
    high: Number
    p_value: Number
    count: int
    verdict: str = Field(description="better, no difference, not decided or worse than the best")


class Standing(_Told):
    """A rule minus the baseline of its kind, paired over seeds, with its 95 % interval."""

    rule: str
    data: str
    at_equal: str = Field(description="rounds, bytes or seconds")
    mean: Number
    low: Number
    high: Number
    p_value: Number
    count: int = Field(description="seeds in which both runs ended")


STANDINGS = TypeAdapter(list[Standing])  # what `forager arena --json` prints


class StrategyFinding(_Told):
    """What is known of one strategy."""

    name: str
    settings: dict[str, Scalar]
    sets: str = Field(description="how it differs from fedavg, as settings")
    seeds: int
    failed: int = Field(description="seeds whose run failed")
    rounds: Number = Field(description="that it was trained for, on average over seeds")
    to_the_end: bool = Field(description="whether it took part in the last stage")
    score: Estimate = Field(description="the metric on the data that decide, at its own end")
    other: Estimate = Field(description="the metric on the other data")
    worst: Estimate = Field(description="the metric of the worst tenth of clients on their own")
    evenness: Estimate = Field(description="Jain's index of participation, over shared-rounds")
    costs: dict[str, Estimate] = Field(description=f"at its own end: {', '.join(COSTS)}")
    against: dict[str, Gap] = Field(
        description="score minus the best's at equal rounds, bytes and work; other, worst and "
        "evenness at equal rounds; empty for the best itself"
    )

    def selecting_a_round(self) -> tuple[float, float]:
        """Return bytes and seconds that selecting takes in a round."""
        found = (self.costs[f"{what} for selecting"].mean for what in ("bytes", "seconds"))
        size, seconds = (total / max(1.0, self.rounds) for total in found)
        return size, seconds


class Curve(_Told):
    """The metric by round with its interval, and the mean cost up to each of the rounds."""

    mean: list[Number]
    low: list[Number]
    high: list[Number]
    rounds: list[Number]
    bytes: list[Number]
    work: list[Number]

    def on(self, axis: str) -> list[float]:
        """Return the costs along an axis."""
        found: list[float] = getattr(self, axis)
        return found


class StageTold(_Told):
    """Up to where strategies were trained, and which."""

    budget: str
    amount: float
    strategies: list[str]


class MetricTold(_Told):
    """What strategies are judged by."""

    name: str
    higher_is_better: bool
    share: bool


class Document(_Told):
    """A comparison of strategies. Unknown numbers are null."""

    task: str
    settings: dict[str, Scalar] = Field(description="that all runs share")
    command: str = Field(description="repeats or continues the comparison")
    budget: str
    seeds: list[int]
    baseline: str
    goal: str = Field(description="whose data decide: server or clients")
    metric: MetricTold
    margin: float = Field(description="values that are closer are as good as equal")
    best: str = Field(description="highest score at the end; empty if all runs failed")
    recommended: str = Field(description="the best, or the baseline where that is as good")
    verdict: list[str] = Field(default=[], description="sentences, the answer first")
    shared_rounds: Number = Field(description="that every run has played")
    stages: list[StageTold]
    strategies: list[StrategyFinding] = Field(description="the best first")
    curves: dict[str, Curve]
    page: str = Field(default="", description="file with the pictures")

    @property
    def judged_by(self) -> Metric:
        """The metric itself."""
        return Metric(self.metric.name, self.metric.higher_is_better, self.metric.share)

    def json_text(self) -> str:
        """Return the document as JSON."""
        return self.model_dump_json(by_alias=True, indent=1)
