"""Run a comparison: stage by stage, in parallel, resumable."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ....core.config import Scalar
from ....core.tasks.metrics import ACCURACY, Metric
from ...report.formatting import plural
from ..measures import GOAL_NAMES, goal_column, level
from ..progress import SweepProgress
from ..records import Cell, SweepRecord
from ..sweep import Sweep, open_sweep
from .budget import CONTENT, LIMIT_AMOUNT, LIMIT_KIND, Budget, Stage, plan, survivors, total_cost
from .candidates import Candidate, baseline_of

RUNNER = "forager.tools.experiments.compare.runner:run_candidate"
# A run that is limited by something else must not end by its number of rounds.
MANY_ROUNDS = 100_000


@dataclass(frozen=True)
class Comparison:
    """The results."""

    candidates: list[Candidate]
    common: Mapping[str, Scalar]
    budget: Budget
    seeds: list[int]
    stages: list[Stage]
    baseline: str
    goal: str = "server"  # whose data decide: a key of `GOAL_NAMES`
    metric: Metric = ACCURACY  # what strategies are judged by
    runs: dict[str, dict[int, SweepRecord]] = field(default_factory=dict)  # longest, by seed
    reached: dict[str, int] = field(default_factory=dict)  # last stage of each strategy, from 0
    # mean of each strategy's metric after its last stage; nan if all of its runs failed
    scores: dict[str, float] = field(default_factory=dict)
    failures: list[SweepRecord] = field(default_factory=list)  # runs that failed

    @property
    def decides(self) -> str:
        """The column that decides."""
        return goal_column(self.metric, self.goal)

    @property
    def other(self) -> str:
        """The column of the same metric on the data that do not decide."""
        (goal,) = GOAL_NAMES.keys() - {self.goal}
        return goal_column(self.metric, goal)

    @property
    def finalists(self) -> list[str]:
        """Those that took part in the last stage and have a score."""
        end = len(self.stages) - 1
        return [n for n, stage in self.reached.items() if stage == end and self.runs[n]]


def compare(
    candidates: Sequence[Candidate],
    common: Mapping[str, Scalar],
    budget: Budget,
    seeds: Sequence[int],
    folder: Path,
    *,
    processes: int | None = 1,  # None: all cores
    halving: bool = True,
    goal: str = "server",
    metric: Metric = ACCURACY,
    runner: str = RUNNER,
    cluster: str | None = "",  # None: that of RAY_ADDRESS
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run the strategies and return what was measured; what was stopped continues in the folder."""
    every = int(common.get("evaluate-every", 1))
    stages = plan(budget, len(candidates), halving=halving, every=every)
    baseline = baseline_of(candidates)
    result = Comparison(
        list(candidates), common, budget, list(seeds), stages, baseline, goal, metric
    )
    with (
        open_sweep(folder / "runs.jsonl", runner, processes, folder / "runs", cluster) as sweep,
        SweepProgress(
            "comparing",
            len(seeds) * sum(stage.candidates for stage in stages),
            sweep.processes,
            cost=len(seeds) * total_cost(stages),
        ) as progress,
    ):
        say(_reused(sweep, result))
        left, before = list(candidates), None
        for number, stage in enumerate(stages):
            _run_stage(sweep, progress, result, left, number, stage.step(before))
            before = stage
            scores = {candidate.name: result.scores[candidate.name] for candidate in left}
            if stage is not stages[-1]:
                count = stages[number + 1].candidates
                going_on = survivors(scores, count, result.baseline, metric)
                left = [candidate for candidate in left if candidate.name in going_on]
    return result


def _reused(sweep: Sweep, result: Comparison) -> str:
    """Say which runs need not be done again, and which were made with other data or code."""
    cells = [_cell(c, result, stage.budget) for c in result.candidates for stage in result.stages]
    known = len(cells) * len(result.seeds) - len(sweep.missing(cells, result.seeds))
    digests = {_without_content(cell.config): cell.digest for cell in cells}
    changed = any(
        digests.get(_without_content(record.config), record.digest) != record.digest
        for record in sweep.records
    )
    text = f"reused: {plural(known, 'earlier run')} with the same settings, data and own code"
    if changed:
        text += "; earlier runs on other data or code are not reused"
    if known < len(cells) * len(result.seeds):
        text += (
            f"\nstarting {plural(sweep.processes, 'process', 'processes')}; each loads PyTorch ..."
        )
    return text


def _without_content(config: Mapping[str, Scalar]) -> str:
    return json.dumps({k: v for k, v in config.items() if k != CONTENT}, sort_keys=True)


def _run_stage(
    sweep: Sweep,
    progress: SweepProgress,
    result: Comparison,
    candidates: Sequence[Candidate],
    number: int,
    step: float,
) -> None:
    stage = result.stages[number]
    cells = [_cell(candidate, result, stage.budget) for candidate in candidates]
    missing = sweep.missing(cells, result.seeds)
    progress.begin(step, len(cells) * len(result.seeds), len(missing))
    sweep.run(missing, progress)
    results = sweep.results(cells, result.seeds)
    result.failures.extend(results.failures)
    for cell in cells:
        runs = results.runs[cell.name]
        if runs or not number:  # what fails now has still done something before
            result.runs[cell.name], result.reached[cell.name] = runs, number
        levels = [level(run.rows, result.decides) for run in runs.values()]
        result.scores[cell.name] = float(np.mean(levels)) if levels else float("nan")


def _cell(candidate: Candidate, result: Comparison, budget: Budget) -> Cell:
    rounds = int(result.budget.amount) if budget.kind == "rounds" else MANY_ROUNDS
    length: dict[str, Scalar] = {
        "num-server-rounds": rounds,
        LIMIT_KIND: budget.kind,
        LIMIT_AMOUNT: budget.amount,
    }
    return Cell(candidate.name, {**result.common, **candidate.settings, **length})
