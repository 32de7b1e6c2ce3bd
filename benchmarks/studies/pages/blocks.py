"""Pages that people write, with tables between marks that records fill in.

A table stands between ``<!-- from records: NAME -->`` and ``<!-- end -->``.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from ....tools.experiments.compare.budget import Budget, plan, survivors, total_cost
from ....tools.experiments.measures import Measure
from ....tools.experiments.tables import Table
from ...printed import COMMANDS, read_printed
from ...sweeps.measures import at_round, final
from ..compare import EVERY, PRESETS, ROUNDS
from ..compare import studies as compare_studies
from ..study import Study

PAGES = ("compare.md", "deployment.md", "speed.md")
BASELINE = "fedavg"
_BLOCK = re.compile(r"<!-- from records: ([\w-]+) -->.*?<!-- end -->", re.DOTALL)


def blocks() -> dict[str, str]:
    """Return all tables by name."""
    (compared,) = compare_studies()
    printed = {name: table.markdown() for name, table in read_printed().items()}
    made = printed | ({"compare": _halving(compared)} if not compared.missing() else {})
    return {**dict.fromkeys([*COMMANDS, "compare"], "Not measured yet."), **made}


def filled(text: str, tables: Mapping[str, str]) -> str:
    r"""Put tables between their marks; a name without a table is an error.

    >>> print(filled("A\n<!-- from records: b -->old<!-- end -->", {"b": "new"}))
    A
    <!-- from records: b -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end -->
    """
    return _BLOCK.sub(
        lambda found: f"<!-- from records: {found[1]} -->\n\n{tables[found[1]]}\n\n<!-- end -->",
        text,
    )


def _halving(study: Study) -> str:
    """Return who would have been stopped when, and how all of them end."""
    results, left, stopped = study.results, list(PRESETS), dict[str, int]()
    stages = plan(Budget("rounds", ROUNDS), len(PRESETS), every=EVERY)
    for stage, following in pairwise(stages):
        at = int(stage.budget.amount)
        scores = {p: results.estimate(p, at_round("accuracy", at)).mean for p in left}
        stay = survivors(scores, following.candidates, BASELINE)
        stopped |= {p: at for p in left if p not in stay}
        left = stay
    rows = [["strategy", "stopped after", "accuracy there", "at the end", "end: points to FedAvg"]]
    ordered = sorted(PRESETS, key=lambda p: -results.estimate(p, final("accuracy")).mean)
    for preset in ordered:
        at = stopped.get(preset, 0)
        there = _mean(study, preset, at_round("accuracy", at)) if at else ""
        end = _mean(study, preset, final("accuracy"))
        rows.append([preset, f"{at or ''}", there, end, _to_baseline(study, preset)])
    spent, whole = total_cost(stages), ROUNDS * len(PRESETS)
    runs = sum(len(found) for found in results.runs.values())
    return (
        f"{runs} runs (`benchmarks/records/compare.jsonl`). {study.setting} Stopping after"
        f" {' and '.join(f'{s.budget.amount:.0f}' for s in stages[:-1])} rounds takes {spent:.0f}"
        f" of {whole} rounds per seed, {100 * spent / whole:.0f} % of them.\n\n"
        f"{Table(rows).markdown()}"
    )


def _mean(study: Study, cell: str, measure: Measure) -> str:
    found = study.results.estimate(cell, measure)
    return f"{100 * found.mean:.1f} ± {100 * found.std:.1f}" if found.count else "-"


def _to_baseline(study: Study, cell: str) -> str:
    if cell == BASELINE:
        return ""
    found = study.results.difference(cell, BASELINE, final("accuracy"))
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
