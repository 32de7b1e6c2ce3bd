"""The page of problems that are no classification of samples."""

from ....tools.experiments.tables import Table
from ...sweeps.measures import final
from ..kinds import FAMILIES, KINDS, studies
from ..study import Study
from .page import unfolded

# What is compared, by how much less or more of it is better, and how it is shown
MEASURES = {
    "regression": ("clients-rmse-mean", -100.0, "RMSE", "less error, hundredths"),
    "next token": ("clients-accuracy-mean", 100.0, "accuracy", "points"),
}
REFUSED = (
    "`gcfl`, `trusted`, `gce` and `hics` need classes of samples and are refused here, before"
    " anything starts."
)


def markdown() -> str:
    """Return the page."""
    (study,) = studies()
    parts = ["# Regression and next tokens", _HEAD]
    for kind in KINDS:
        parts.append(f"## {kind[0].upper()}{kind[1:]}")
        parts += [_family(study, kind, family) for family in FAMILIES]
    parts += ["## What was run", study.setting, REFUSED, unfolded("Run it again", _AGAIN)]
    return "\n\n".join(parts) + "\n"


def _family(study: Study, kind: str, family: str) -> str:
    metric, scale, name, gain = MEASURES[kind]
    plain, *_ = FAMILIES[family]
    lines = [[family, "seeds", name, f"{gain}, to {plain}"]]
    for rule in FAMILIES[family]:
        cell, baseline = (f"{kind}, {family}: {each}" for each in (rule, plain))
        runs = study.results.runs
        if not (runs.get(cell) and runs.get(baseline)):
            lines.append([rule, "0", "-", "-"])
            continue
        own = study.results.estimate(cell, final(metric))
        gap = study.results.difference(cell, baseline, final(metric))
        mean, low, high = gap.mean * scale, *sorted((gap.low * scale, gap.high * scale))
        interval = f" [{low:+.1f}, {high:+.1f}]" if gap.count > 1 else ""
        words = "" if rule == plain else f"{mean:+.1f}{interval}"
        lines.append([rule, str(own.count), f"{own.mean:.3f}", words])
    return Table(lines).markdown()


_HEAD = """\
Methods that need no classes, each against the baseline of its family, with 95 % intervals of paired
differences. In the last column more is better. **For a regression keep random samples or the newest
ones:** `high-loss` and `sld` lead to worse models. So does `ode` on average, by as much as
`high-loss`, but five seeds do not decide it. On these stations neither the choice of clients nor
`split-test` makes a difference. **On next tokens** nothing is better than its baseline:
coresets are as good as random samples of the same number, and tuning, `high-loss` and `ios-centred`
cost accuracy."""
_AGAIN = """\
Every number here comes from `benchmarks/records/kinds.jsonl`.

```
make results
FORAGER_DATA=... python -m forager.benchmarks.studies run kinds    # what is not measured yet
```"""
