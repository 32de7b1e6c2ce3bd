"""The arena: every rule of who trains in pairs with lots, after equal rounds, bytes or seconds."""

import hashlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from ...core.config import Scalar
from ...core.methods.catalogue import methods
from ...core.methods.selector import Selector
from ...selectors.client_selectors.base import ClientSelector
from ..engine.local import LocalResult
from .compare.budget import COLUMNS, LIMIT_AMOUNT, LIMIT_KIND
from .compare.runner import run_candidate
from .measures import at_equal
from .records import Cell, SweepError
from .results import Results
from .tables import Table

RUNNER = "forager.tools.experiments.arena:run_rule"
BASELINE = "random"
ROUNDS = 40
COMMON: dict[str, Scalar] = {
    **{"task": "digits", "strategy": "fedavg", "num-clients": 50, "clients-per-round": 5},
    **{"local-epochs": 2, "num-server-rounds": ROUNDS, "evaluate-every": 2, "devices.slow": True},
    **{"report": False, "checkpoint.every": 0, "local.threads": 1, "learning-rate": 0.05},
    **{LIMIT_KIND: "rounds", LIMIT_AMOUNT: ROUNDS},
}
DATA: dict[str, dict[str, Scalar]] = {
    "digits, uneven": {"partition": "dirichlet", "split.alpha": 0.1},
    "digits, one class each": {"partition": "shards", "split.shards-per-client": 1},
    "digits, wrong labels": {"partition": "dirichlet", "noise": "closed-set"},
    "blobs, uneven": {"task": "blobs", "partition": "dirichlet", "split.alpha": 0.1},
    "synthetic users": {"task": "synthetic", "partition": "natural"},
}


def rules() -> list[str]:
    """Return the rules that choose some of the clients, lots first."""
    return [name for name in methods("client-selector") if name != "all"]


def cells(names: Sequence[str], own: Path | None = None) -> list[Cell]:
    """Return a run of each rule, and of the one in a file, on each data set."""
    chosen: dict[str, dict[str, Scalar]] = {name: {"client-selector": name} for name in names}
    if own is not None:
        text = hashlib.sha256(own.read_bytes()).hexdigest()[:16]  # another text is another rule
        chosen[own.stem] = {"arena.rule": str(own), "arena.text": text}
    return [
        Cell(f"{data}: {name}", {**COMMON, **setting, **keys})
        for data, setting in DATA.items()
        for name, keys in chosen.items()
    ]


def own_rule(path: Path) -> type[ClientSelector]:
    """Return the one rule that a file defines."""
    name = f"forager._rule_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SweepError(f"{path}: there is no such Python file")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = [k for k in vars(module).values() if isinstance(k, type) and k.__module__ == name]
    found = [kind for kind in kinds if issubclass(kind, ClientSelector)]
    if len(found) != 1:
        raise SweepError(f"{path}: defines {len(found)} subclasses of ClientSelector, not one")
    return found[0]


def run_rule(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one rule; the rows are the rounds that were evaluated, with what was spent so far."""
    own = {key: str(value) for key, value in overrides.items() if key.startswith("arena.")}
    config = {key: value for key, value in overrides.items() if key not in own}
    if own:
        path = Path(own["arena.rule"])
        place = f"_rule_{path.stem}:{own_rule(path).__name__}"
        rule = Selector(name=path.stem, about="a rule of the user's own", core=place)
        known: Any = methods("client-selector")
        known[path.stem] = rule
        config["client-selector"] = path.stem
    result = run_candidate(config, quiet=quiet)
    kept = ("accuracy", *COLUMNS.values())
    rows = [{name: row[name] for name in kept} for row in result.rounds if "accuracy" in row]
    return LocalResult(result.folder, result.reason, rows)


def standings(results: Results, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return each rule's difference in accuracy to lots on each data set, by each cost."""
    found = []
    for name, data in itertools.product(names, DATA):
        own, lots = (results.runs[f"{data}: {each}"] for each in (name, BASELINE))
        for cost, column in COLUMNS.items():
            gap = at_equal(own, lots, column, "accuracy")
            found.append({"rule": name, "data": data, "at-equal": cost, **vars(gap)})
    return found


def table(found: Sequence[Mapping[str, Any]], cost: str, sets: Sequence[str] = ()) -> Table:
    """Return rules by data sets in points, those that gain most in the mean first."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in found:
        if each["at-equal"] == cost and each["count"]:
            rows.setdefault(each["rule"], {})[each["data"]] = each
    means = {n: 100 * np.mean([each["mean"] for each in own.values()]) for n, own in rows.items()}
    sets = sets or list(DATA)
    lines = [["rule", "mean", *sets]]
    for name in sorted(means, key=lambda name: -means[name]):
        shown = [_points(rows[name][data]) if data in rows[name] else "-" for data in sets]
        lines.append([name, f"{means[name]:+.1f}", *shown])
    return Table(lines)


def _points(found: Mapping[str, Any]) -> str:
    mean, low, high = (100 * found[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
