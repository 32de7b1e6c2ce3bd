"""ODE's second measure: how many times sooner than the reservoir a rule is as accurate as that."""

import statistics
from collections.abc import Sequence

from ....tools.experiments.measures import Rows
from ....tools.experiments.tables import Table
from ...sweeps.measures import last_mean, rounds_to
from ..ode import DATA, IMAGES, LONG, RULES, images, rules

BASELINE = "reservoir"
# Table 2: ODE-Est on their synthetic data, Fashion-MNIST, HARBOX and their own traffic
PAPER = {"synthetic": 5.88, IMAGES: 1.20, "activities (WISDM)": 1.55, "traffic": 2.50}
_TESTED_BY_SERVER = ("traffic", IMAGES)  # alone
INTRODUCTION = (
    "The paper's other measure in table 2: the number of rounds in which the reservoir reaches its"
    " final accuracy, divided by the number in which a rule reaches the same. The accuracy is the"
    " mean over devices, each on its own test data, as in the paper; traffic and Fashion-MNIST are"
    " tested by the server only. Final means the last three evaluations, on average. Only every"
    " 25th round is evaluated, so ratios are coarse. Median over the seeds that get there, with"
    " the lowest and the highest in brackets. The last column has the difference of the final"
    " accuracies in points, with a 95 % interval that is not corrected for their number."
)


def speed_up(rows: Rows, baseline: Rows, metric: str) -> float | None:
    """Return how many times sooner one run is as accurate as another at its end; or never.

    >>> slow = [{"round": r, "accuracy": 0.1 * r} for r in (2, 4, 6, 6, 6)]
    >>> fast = [{"round": r, "accuracy": 0.3 * r} for r in (1, 2, 3)]
    >>> speed_up(fast, slow, "accuracy"), speed_up(slow[:2], slow, "accuracy")
    (3.0, None)
    """
    target = last_mean(metric).of(baseline)
    if target is None:
        return None
    there = rounds_to(metric, target - 1e-9)
    reached, usual = there.of(rows), there.of(baseline)
    return usual / reached if reached and usual else None


def speed_ups() -> str:
    """Return the table."""
    head = ["data", "accuracy", "rule", "seeds that get there", "times as fast", "the paper"]
    lines = [[*head, "points at the end"]]
    for name in DATA:
        study = images() if name == IMAGES else rules()
        tested = name in _TESTED_BY_SERVER
        metric = "accuracy" if tested else "clients-accuracy-mean"
        words, runs = "server's" if tested else "over devices", study.results.runs
        usual = runs[f"{name}: {BASELINE}"]
        for rule in (rule for rule in LONG.get(name, RULES) if rule != BASELINE):
            own = runs[f"{name}: {rule}"]
            if not own:
                continue
            seeds = [seed for seed in own if seed in usual]
            found = [speed_up(own[seed].rows, usual[seed].rows, metric) for seed in seeds]
            reached = [ratio for ratio in found if ratio is not None]
            paper = f"{PAPER[name]:.2f}" if rule == "ode" else ""
            got_there = f"{len(reached)} of {len(seeds)}"
            more = study.results.difference(
                f"{name}: {rule}", f"{name}: {BASELINE}", last_mean(metric)
            )
            points = f"{100 * more.mean:+.1f} [{100 * more.low:+.1f}, {100 * more.high:+.1f}]"
            lines.append([name, words, rule, got_there, _words(reached), paper, points])
    return f"{INTRODUCTION}\n\n{Table(lines).markdown()}"


def _words(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"
