"""Whether ``forager diagnose`` finds what was planted, and nothing else.

A runner for studies: one row per run, with a column for everything that can be found. As a command,
``python -m forager.benchmarks.diagnosed`` prints the tables of ``docs/diagnose.md`` from the
records, which ``python -m forager.benchmarks.studies run diagnose`` makes.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..core.config import Scalar
from ..core.tasks import load_task
from ..selectors.diagnosis.learning_curve import rounds_to
from ..server_app.run_folder import RunFolder
from ..tools.cli.diagnose import examined
from ..tools.diagnose.evidence import RunEvidence
from ..tools.diagnose.findings import PARTS, findings
from ..tools.engine.local import LocalResult, run_local
from ..tools.experiments.results import Results

ROUNDS = 12
# What is planted, and what must be found of it
PLANTED = {
    "plain": "",
    "skewed": "label skew",
    "grouped": "groups",
    "noisy": "doubtful labels",
    "drifting": "drift",
    "slow": "slow or away",
}
LONG = 48  # rounds of runs whose curve is forecast from the first ones
_HOLD = "forecasts that hold"
TARGETS = (20, 28, 40)  # rounds whose best value so far is the target


def run_diagnosed(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Examine a federation; return what was found, and how good forecasts were in long runs."""
    load_task.cache_clear()  # a run in which data drift has changed them
    rounds = int(overrides.get("num-server-rounds", ROUNDS))
    result = run_local(examined(overrides, rounds), quiet=quiet)
    seen = RunEvidence.of(RunFolder.open(result.folder).read_events())
    row: dict[str, Any] = {"round": rounds, "accuracy": seen.scores[rounds]}
    if rounds > ROUNDS:
        row |= _forecasts(seen)
    else:
        row |= {f"found {name}": int(bool(findings(seen)[name].found)) for name in PARTS}
    return LocalResult(result.folder, result.reason, [row])


def _forecasts(seen: RunEvidence) -> dict[str, float]:
    """Return how many forecasts were made from the first rounds, and how many hold."""
    gaps = [1 - seen.scores[number] for number in sorted(seen.scores)]
    told = held = 0
    for place in TARGETS:
        target = min(gaps[:place])
        truth = next(number for number, gap in enumerate(gaps, 1) if gap <= target)
        forecast = rounds_to(gaps[:ROUNDS], target)
        if truth > ROUNDS and forecast is not None:
            told += 1
            held += forecast[1] <= truth <= forecast[2]
    return {"found forecasts": told, f"found {_HOLD}": held}


def planted_cells(results: Results) -> list[str]:
    """Return the cells in which something is planted, or nothing."""
    return [name for name in results.cells if not name.endswith("long")]


def found_right(results: Results, cell: str) -> int:
    """Return in how many runs of a cell the planted was found, or nothing where nothing is."""
    wanted = PLANTED[cell.split(": ")[1]]
    rows = [record.rows[-1] for record in results.runs[cell].values()]
    return sum(bool(row[f"found {wanted}"]) if wanted else not any(_found(row)) for row in rows)


def tables(results: Results) -> str:
    """Return the tables of the page."""
    rows = [
        "| data | planted | found | also found, in how many runs |",
        "| --- | --- | --- | --- |",
    ]
    for cell in planted_cells(results):
        data, planted, way = cell.split(": ")
        found: Counter[str] = Counter()
        for row in (record.rows[-1] for record in results.runs[cell].values()):
            found.update(name for name in PARTS if row.get(f"found {name}"))
        right = f"{found_right(results, cell)} of {len(results.runs[cell])}"
        wanted = PLANTED[planted]
        others = ", ".join(f"{name} {count}" for name, count in found.items() if name != wanted)
        rows.append(f"| {data} | {planted}: {way} | {right} | {others} |")
    long: list[Any] = [
        r.rows[-1] for name, c in results.runs.items() if "long" in name for r in c.values()
    ]
    told, held = (sum(row[f"found {n}"] for row in long) for n in ("forecasts", _HOLD))
    told_of = f"{told:.0f} of {len(TARGETS) * len(long)}"
    forecasts = f"A forecast was possible in {told_of} cases; {held:.0f} of them held."
    return "\n".join([*rows, "", forecasts])


def _found(row: Any) -> Sequence[int]:
    return [row[f"found {name}"] for name in PARTS]


def main() -> int:
    """Print the tables."""
    from .studies.diagnose import studies

    (study,) = studies()
    print(tables(study.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
