"""The page "Does it harm?": every preset on eight data sets, and ours against the papers'."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ....tools.experiments.measures import Measure
from ....tools.experiments.statistics import Difference, difference
from ....tools.experiments.tables import Table
from ...sweeps.measures import last_mean
from ..equal_bytes import difference_at_equal_bytes
from ..no_harm import DATA, NOISE, PRESETS, clients, coresets, streams
from ..study import Study
from .page import unfolded

OWN, WORST = "clients-accuracy-mean", "clients-accuracy-worst-10"
RULES = ("ode-balanced", "ode")
Compare = Callable[[str, str], Difference]

_INTRODUCTION = """\
At equal rounds `scaffold`, `fedyogi` and `auxo`, which aggregates by FedYogi, gain most often and
harm nowhere. At equal bytes SCAFFOLD, which sends twice as much, is below FedAvg more often than
above it. `split-test` changes nothing if there are no groups; `gcfl` harms on clean labels, and
`ios` if clients have few samples. No other preset is above its baseline on more than half of the
data sets."""
_HOW = """\
Every preset on eight data sets, 5 seeds, against its baseline: FedAvg, random samples of the same
budget, or a reservoir of the same size. Differences in points of accuracy. **▲** above, **▼**
below: the 95 % interval of the paired differences excludes zero. Of eight comparisons, 0.2 are
expected on either side by chance alone. Learning rates were chosen for the baselines, on another
seed. `ios` ran when importance was still measured after training."""
_LETTERS = """\
The gain of each of our methods over the paper's method that it derives from, in the same runs."""
_AGAIN = """\
Every number here comes from `benchmarks/records/no-harm-*.jsonl`.

```
make results
make results-rerun PAPER=no-harm
```"""


def markdown() -> str:
    """Return the page."""
    who, what, kept = clients(), coresets(), streams()
    streams_by = {rule: [(f"{d}: {rule}", f"{d}: reservoir") for d in DATA] for rule in RULES}
    sections = {
        "Instead of FedAvg: at equal bytes": [
            "Each pair is compared at the total bytes of the one that sends less.",
            _presets(who, _by_bytes(who)),
        ],
        "Instead of FedAvg: the worst tenth of clients": [
            _presets(who, _by(who, last_mean(WORST)))
        ],
        "Instead of random samples, drawn anew in every round": [
            what.setting,
            *(_coresets(what, noise) for noise in NOISE),
        ],
        "Instead of a reservoir": [
            kept.setting,
            comparisons(streams_by, _by(kept, last_mean("accuracy"))),
            "Accuracy on the model's worst class:",
            comparisons(streams_by, _by(kept, last_mean("worst-class"))),
        ],
        "Ours against the papers'": [_LETTERS, _letters(who, what, kept)],
        "Run it again": [_AGAIN],
    }
    parts = [
        "# Does it harm?",
        _INTRODUCTION,
        "## Instead of FedAvg: at equal rounds",
        _presets(who, _by(who, last_mean(OWN))),
        f"{_HOW} {who.setting}",
        "## More tables",
        *(unfolded(heading, "\n\n".join(texts)) for heading, texts in sections.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _by(study: Study, measure: Measure) -> Compare:
    return if_run(study, lambda a, b: study.results.difference(a, b, measure))


def _by_bytes(study: Study) -> Compare:
    return if_run(study, lambda a, b: difference_at_equal_bytes(study.results, a, b, OWN))


def if_run(study: Study, compare: Compare) -> Compare:
    """Return a comparison that says nothing of cells without runs."""
    runs = study.results.runs
    return lambda a, b: compare(a, b) if runs.get(a) and runs.get(b) else difference({}, {})


def _presets(study: Study, compare: Compare) -> str:
    chosen = [preset for preset in PRESETS if preset != "fedavg"]
    return comparisons({p: [(f"{d}: {p}", f"{d}: fedavg") for d in DATA] for p in chosen}, compare)


def _coresets(study: Study, noise: str) -> str:
    rows = {
        rule: [(f"{noise}, {d}: {rule}", f"{noise}, {d}: random") for d in DATA]
        for rule in ("trusted", "gcfl")
    }
    title = f"{noise[0].upper()}{noise[1:]}:"
    return f"{title}\n\n{comparisons(rows, _by(study, last_mean('accuracy')))}"


def _letters(who: Study, what: Study, kept: Study) -> str:
    noise = next(iter(NOISE))
    lines: list[tuple[str, Compare, str]] = [
        ("cosage-feedback - cosage", _by(who, last_mean(OWN)), ""),
        ("trusted - gcfl", _by(what, last_mean("accuracy")), f"{noise}, "),
        ("ode-balanced - ode", _by(kept, last_mean("accuracy")), ""),
        ("split-test - auxo", _by(who, last_mean(OWN)), ""),
        ("ios-centred - ios", _by(who, last_mean(OWN)), ""),
    ]
    rows: list[str] = []
    for title, compare, before in lines:
        first, _, second = title.partition(" - ")
        pairs = [(f"{before}{d}: {first}", f"{before}{d}: {second}") for d in DATA]
        rows += comparisons({title: pairs}, compare).splitlines()[0 if not rows else 2 :]
    return "\n".join(rows)


def comparisons(
    rows: Mapping[str, Sequence[tuple[str, str]]], compare: Compare, columns: Iterable[str] = DATA
) -> str:
    """Return a row per preset, a column per data set, and how often it is above and below."""
    lines = [["", "▲", "▼", *columns]]
    for name, pairs in rows.items():
        found = [compare(first, second) for first, second in pairs]
        lines.append([name, *_counts(found), *map(_entry, found)])
    return Table(lines).markdown()


def _counts(found: Sequence[Difference]) -> tuple[str, str]:
    verdicts = [each.verdict for each in found]
    return str(verdicts.count("higher")), str(verdicts.count("lower"))


def _entry(found: Difference) -> str:
    if not found.count:
        return "-"
    mark = {"higher": " **▲**", "lower": " **▼**"}.get(found.verdict, "")
    return f"{100 * found.mean:+.1f}{mark}"
