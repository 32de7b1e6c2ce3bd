"""Small runs on digits with planted groups: whether Auxo finds what FlexCFL is given.

The table of ``docs/methods/auxo.md``: every method as ``strategy='<name>'`` sets it up, 20 clients,
10 per round, 20 rounds; then half of all that.
"""

from collections.abc import Sequence

from ..core.config import Scalar
from ..tools.experiments.measures import Measure
from ..tools.experiments.records import Cell
from ..tools.experiments.results import Results
from ..tools.experiments.tables import Table
from .sweeps.measures import final

Changes = dict[str, Scalar]

CLIENTS, ROUNDS = 20, 20
COMMON: Changes = {
    "partition": "iid",
    "data.client-test-share": 0.2,
    "fraction-evaluate": 1.0,
    "checkpoint.every": 0,
}
METHODS = ("fedavg", "auxo", "flexcfl", "split-test", "cfl, all train")
KINDS = {"turned images": "rotation", "permuted labels": "label-permutation"}


def planted_cells(
    clients: int = CLIENTS, rounds: int = ROUNDS, model: str = "softmax"
) -> list[Cell]:
    """Return all runs: two kinds of groups, two and four of them, and two groups at half size."""
    sizes = [(2, 1), (4, 1), (2, 2)]  # groups, and what clients and rounds are divided by
    return [
        Cell(
            _name(kind, count, part, method),
            {"model": model, **_config(kind, count, part, method, clients, rounds)},
        )
        for count, part in sizes
        for kind in KINDS
        for method in METHODS
    ]


def _name(kind: str, count: int, part: int, method: str) -> str:
    return f"{kind}, {count}{', half size' if part > 1 else ''}: {method}"


def _config(kind: str, count: int, part: int, method: str, clients: int, rounds: int) -> Changes:
    return {
        **COMMON,
        "num-clients": max(2, clients // part),
        "clients-per-round": max(1, clients // part // 2),
        "num-server-rounds": max(1, rounds // part),
        "groups.kind": KINDS[kind],
        "groups.count": count,
        **_method(method, count),
    }


def _method(name: str, count: int) -> Changes:
    if name == "flexcfl":
        return {"cohorts": name, "cohort.number": count}
    # CFL compares the updates of all members of a cohort, so everyone takes part.
    everyone: Changes = {"cohorts": "cfl", "client-selector": "all"}
    return everyone if name.startswith("cfl") else {"strategy": name}


def planted_table(results: Results) -> Table:
    """Return one row per kind of groups: accuracy, cohorts against groups, and the worst tenth."""
    accuracy, worst = final("clients-accuracy-mean"), final("clients-accuracy-worst-10")
    ways = list(dict.fromkeys(cell.rpartition(": ")[0] for cell in results.cells))
    shown = ("fedavg", "flexcfl", "split-test")
    rows = [
        ["groups", *METHODS, "ARI of split-test", "ARI of cfl", f"worst tenth: {', '.join(shown)}"]
    ]
    for way in ways:
        rows.append(
            [
                way,
                *(_means(results, way, [method], accuracy) for method in METHODS),
                _means(results, way, ["split-test"], final("ari"), ".2f"),
                _means(results, way, [METHODS[-1]], final("ari"), ".2f"),
                _means(results, way, shown, worst),
            ]
        )
    return Table(rows)


def _means(
    results: Results, way: str, wanted: Sequence[str], measure: Measure, form: str = ".3f"
) -> str:
    """Return the means over seeds of some methods, a dash for those that were not run."""
    cells = [f"{way}: {method}" for method in wanted]
    found = [results.estimate(c, measure) if results.runs.get(c) else None for c in cells]
    return ", ".join("-" if e is None or not e.count else format(e.mean, form) for e in found)
