"""The arena: rules of one kind in pairs with the plain one, at equal rounds, bytes or seconds."""

import hashlib
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from ...core.config import Scalar
from ...core.methods.base import Method, load
from ...core.methods.catalogue import methods
from ...core.methods.cohort import CohortMethod
from ...core.methods.selector import Selector
from ...core.methods.stream import StreamMethod
from ..engine.local import LocalResult
from .compare.budget import COLUMNS, LIMIT_AMOUNT, LIMIT_KIND
from .compare.runner import run_candidate
from .measures import at_equal
from .records import Cell, SweepError
from .results import Results
from .tables import Table

Settings = dict[str, Scalar]

RUNNER = "forager.tools.experiments.arena:run_rule"
ROUNDS = 40
COMMON: Settings = {
    **{"task": "digits", "strategy": "fedavg", "num-clients": 50, "clients-per-round": 5},
    **{"local-epochs": 2, "num-server-rounds": ROUNDS, "evaluate-every": 2, "devices.slow": True},
    **{"report": False, "checkpoint.every": 0, "local.threads": 1, "learning-rate": 0.05},
    **{LIMIT_KIND: "rounds", LIMIT_AMOUNT: ROUNDS},
}
UNEVEN: Settings = {"partition": "dirichlet", "split.alpha": 0.1}
WRONG: Settings = {"partition": "dirichlet", "noise": "closed-set"}
USERS: Settings = {"task": "synthetic", "partition": "natural"}


@dataclass(frozen=True)
class Kind:
    """Rules that can replace each other; places are ``module:attribute``."""

    base: str  # what such a rule derives from
    declared: Callable[[str, str], Method]  # from a rule's name and place
    baseline: str  # what all others are compared with
    data: Mapping[str, Settings]
    common: Settings = field(default_factory=dict)
    metric: str = "accuracy"
    out: tuple[str, ...] = ()  # rules of the axis that are no rivals

    @property
    def axis(self) -> str:
        """The axis of the run config."""
        return self.declared("", "").axis

    def rules(self) -> list[str]:
        """Return the rules that there are, the baseline first."""
        streams, out = isinstance(self.declared("", ""), StreamMethod), {*self.out, self.baseline}
        known = methods(self.axis).items()
        found = [name for name, each in known if isinstance(each, StreamMethod) == streams]
        return [self.baseline, *(name for name in found if name not in out)]


_OWN = "a rule of your own"
FEWER: Settings = {"num-clients": 20, "coreset.budget": 0.1, "stream.velocity": 0.02}
GROUPS: Settings = {"partition": "iid", "groups.count": 4}
KINDS = {
    "who trains": Kind(
        "selectors.client_selectors.base:ClientSelector",
        lambda name, place: Selector(name=name, about=_OWN, core=place),
        "random",
        {
            "digits, uneven": UNEVEN,
            "digits, one class each": {"partition": "shards", "split.shards-per-client": 1},
            **{"digits, wrong labels": WRONG, "blobs, uneven": {"task": "blobs", **UNEVEN}},
            "synthetic users": USERS,
        },
        out=("all",),
    ),
    "on which samples": Kind(
        "client_app.hooks.base:ClientHook",
        lambda name, place: Method(axis="data-selector", name=name, about=_OWN, hook=place),
        "random",
        {
            **{"samples of digits, wrong labels": WRONG, "samples of digits, uneven": UNEVEN},
            "samples of blobs, wrong labels": {"task": "blobs", **WRONG},
        },
        FEWER,
        out=("examined",),
    ),
    "what a stream keeps": Kind(
        "selectors.stream_selectors.base:StreamSelector",
        lambda name, place: StreamMethod(name=name, about=_OWN, core=place, needs=("linear head",)),
        "reservoir",
        {
            **{"stream of digits, uneven": UNEVEN, "stream of synthetic users": USERS},
            "stream of digits, drifting": {"partition": "iid", "stream.drift": 1.0},
        },
        FEWER,
    ),
    "with whom": Kind(
        "strategies.cohorts.base:CohortRule",
        lambda name, place: CohortMethod(name=name, about=_OWN, rule=place),
        "none",
        {
            "turned images, 4 groups": {**GROUPS, "groups.kind": "rotation"},
            "permuted labels, 4 groups": {**GROUPS, "groups.kind": "label-permutation"},
            "no groups": {"partition": "dirichlet", "split.alpha": 0.3},
        },
        {
            **{"num-clients": 20, "clients-per-round": 10, "fraction-evaluate": 1.0},
            **{"data.client-test-share": 0.2, "cohort.number": 4},
        },
        "clients-accuracy-mean",
    ),
}
FIRST = "who trains"


def cells(kind: Kind, names: Sequence[str], own: Path | None = None) -> list[Cell]:
    """Return a run of each rule, and of the one in a file, on each data set."""
    similar, known = {"similarity": "centred-overlap"}, methods(kind.axis)
    chosen: dict[str, Settings] = {
        name: {kind.axis: name, **(similar if "a similarity" in known[name].needs else {})}
        for name in names
    }
    if own is not None:
        text = hashlib.sha256(own.read_bytes()).hexdigest()[:16]  # another text is another rule
        chosen[own.stem] = {"arena.rule": str(own), "arena.text": text}
    return [
        Cell(f"{data}: {name}", {**COMMON, **kind.common, **setting, **keys})
        for data, setting in kind.data.items()
        for name, keys in chosen.items()
    ]


def own_rule(path: Path) -> tuple[Kind, type]:
    """Return the one rule that a file defines, and its kind."""
    name = f"forager._rule_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SweepError(f"{path}: there is no such Python file")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [k for k in vars(module).values() if isinstance(k, type) and k.__module__ == name]
    found = [(kind, k) for kind in KINDS.values() for k in own if issubclass(k, load(kind.base))]
    bases = ", ".join(kind.base.partition(":")[2] for kind in KINDS.values())
    if len(found) != 1:
        raise SweepError(f"{path}: defines {len(found)} subclasses of {bases}, not one")
    return found[0]


def run_rule(overrides: Settings, *, quiet: bool = True) -> LocalResult:
    """Run one rule; the rows are the rounds that were evaluated, with what was spent so far."""
    own = {key: str(value) for key, value in overrides.items() if key.startswith("arena.")}
    config = {key: value for key, value in overrides.items() if key not in own}
    if own:
        path = Path(own["arena.rule"])
        kind, rule = own_rule(path)
        known: Any = methods(kind.axis)
        known[path.stem] = kind.declared(path.stem, f"_rule_{path.stem}:{rule.__name__}")
        config[kind.axis] = path.stem
    result = run_candidate(config, quiet=quiet)
    kept = ("accuracy", "clients-accuracy-mean", *COLUMNS.values())
    rows = [{n: row[n] for n in kept if n in row} for row in result.rounds if "accuracy" in row]
    return LocalResult(result.folder, result.reason, rows)


def standings(results: Results, kind: Kind, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return each rule's difference in accuracy to the baseline on each data set, by each cost."""
    found = []
    for name, data in itertools.product(names, kind.data):
        own, plain = (results.runs[f"{data}: {each}"] for each in (name, kind.baseline))
        for cost, column in COLUMNS.items():
            gap = at_equal(own, plain, column, kind.metric)
            found.append({"rule": name, "data": data, "at-equal": cost, **vars(gap)})
    return found


def table(found: Sequence[Mapping[str, Any]], cost: str, sets: Sequence[str]) -> Table:
    """Return rules by data sets in points, those that gain most in the mean first."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in found:
        if each["at-equal"] == cost and each["count"]:
            rows.setdefault(each["rule"], {})[each["data"]] = each
    means = {n: 100 * np.mean([each["mean"] for each in own.values()]) for n, own in rows.items()}
    lines = [["rule", "mean", *sets]]
    for name in sorted(means, key=lambda name: -means[name]):
        shown = [_points(rows[name][data]) if data in rows[name] else "-" for data in sets]
        lines.append([name, f"{means[name]:+.1f}", *shown])
    return Table(lines)


def _points(found: Mapping[str, Any]) -> str:
    mean, low, high = (100 * found[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
