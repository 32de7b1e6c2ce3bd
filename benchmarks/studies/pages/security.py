"""The page on attackers: what they cost under each defence."""

from pathlib import Path

from ....tools.experiments.measures import Measure
from ....tools.experiments.tables import Table
from ...sweeps.measures import final
from ...sweeps.tables import Column
from ..claims import Claim, Trial, claims_table, outcomes, rule
from ..figures import draw_differences
from ..security import AFFINITY, DEFENCES, RULES, SPOILT, WAYS, cohorts, summaries, updates
from ..study import Study

ACCURACY, HONEST = final("accuracy"), final("accuracy-honest")
TURNS = Column("their share of turns", final("turns-hostile"), ".0f", 100)
_LYING = ("no attack", "they flip", "they flip and lie")

_HEAD = """\
# What attackers cost

**In short.** The default bounds cost nothing without an attack, and stop updates that are ten times
too large. If clients are about equally large, also set `quarantine.count-factor=5`: otherwise four
liars among 20 clients that claim 100 times their samples have most of the weight. Against updates
just below the bounds use `clipped-mean`, or `fltrust` if the server has clean data. Do not choose
clients by dissimilarity alone: there a lie costs tens of points. Under CosAge, which also counts
ages, we saw no loss. [Security](../security.md) lists what is defended and what is not.

Every fifth of 20 clients is hostile. Differences are in points of accuracy, with 95 % intervals
over seeds."""
_ON_UPDATES = """\
Values that are not finite, and updates a million times too large, never reach an aggregator.
Multi-Krum weights the updates that it keeps by the claimed numbers of samples; a liar among them
counts for many."""
_ON_LIES = """\
Rules by loss may suffer from flips alone, without any lie: a flipped model makes losses large. The
server cannot verify how dissimilar a client is; `clients.at-most` limits how often such a client is
chosen. An implausible loss is set aside, so rules by loss leave out liars."""
_AGAIN = """\
Every number here comes from `benchmarks/records/security-*.jsonl`.

```
make results
make results-rerun PAPER=security
```"""


def markdown() -> str:
    """Return the page."""
    spoilt, lies, grouped = updates(), summaries(), cohorts()
    claims = _claims(spoilt, lies, grouped)
    parts = [
        _HEAD,
        "![Differences with 95 % intervals](security-claims.svg)",
        "## What holds",
        rule(claims, "the plainest"),
        claims_table(claims),
        "## Attacks on what is aggregated",
        spoilt.setting,
        _by_defence(spoilt),
        _ON_UPDATES,
        "## Lies about summaries",
        lies.setting,
        _by_rule(lies),
        _ON_LIES,
        "## Cohorts",
        grouped.setting,
        _by_way(grouped),
        "## Run it again",
        _AGAIN,
    ]
    return "\n\n".join(parts) + "\n"


def draw(folder: Path) -> Path:
    """Draw the differences."""
    claims = _claims(updates(), summaries(), cohorts())
    path = folder / "security-claims.svg"
    return draw_differences(claims, outcomes(claims), "points of accuracy", path)


def _claims(spoilt: Study, lies: Study, grouped: Study) -> tuple[Claim, ...]:
    def defended(attack: str, *defences: str, over: str = "mean") -> tuple[Trial, ...]:
        where = "nobody attacks" if attack == "none" else attack
        return tuple(
            Trial(f"{where}, {d} - {over}", spoilt, f"{attack}: {d}", f"{attack}: {over}", ACCURACY)
            for d in defences
        )

    def lied(chosen_by: str) -> Trial:
        before, after = f"{chosen_by}, they flip", f"{chosen_by}, they flip and lie"
        return Trial(f"{chosen_by}, lies - only flips", lies, after, before, ACCURACY)

    def compared(where: str, study: Study, cell: str, baseline: str, by: Measure) -> Trial:
        return Trial(
            f"{where}, {cell} - {baseline}", study, f"{cell}, {where}", f"{baseline}, {where}", by
        )

    robust = ("median", "trimmed mean", "multi-krum")
    boosted, many = "flipped and boosted ten times", "flipped, and claims 100 times the data"
    nobody, barred = AFFINITY
    return (
        Claim(
            "Bounds cost nothing without an attack",
            defended("none", "mean", "tight bounds", over="no bounds"),
            "not below",
        ),
        Claim(
            "Robust aggregators cost nothing without an attack",
            defended("none", *robust),
            "not below",
        ),
        Claim(
            "Bounds stop updates ten times too large",
            defended(boosted, "mean", "tight bounds", over="no bounds"),
        ),
        Claim("Tight bounds stop lies about the number of samples", defended(many, "tight bounds")),
        Claim(
            "Robust aggregators help against updates just below the bounds",
            defended("flipped and boosted four times", *robust, "clipped mean", "fltrust"),
        ),
        Claim(
            "Robust aggregators help against a plain sign flip", defended("sign flipped", *robust)
        ),
        Claim(
            "Robust aggregators help against replayed replies",
            defended("replays its first reply", *robust),
        ),
        Claim("A lie gains nothing under CosAge", (lied("cosage"),), "not below"),
        Claim(
            "A lie gains nothing under dissimilarity alone",
            (lied("dissimilarity"),),
            "not below",
        ),
        Claim(
            "A lie gains nothing under rules by loss",
            tuple(map(lied, ("local-loss", "oort"))),
            "not below",
        ),
        Claim(
            "Turns withstand flips better than random choice",
            (compared("they flip", lies, "aoi", "random", ACCURACY),),
        ),
        Claim(
            "Reversed labels: the median and cohorts help honest clients",
            tuple(
                compared("attacked", grouped, w, "one model", HONEST)
                for w in ("median", "split-test", "fl-hc")
            ),
        ),
        Claim(
            "Barring liars helps honest clients",
            (compared("attacked", grouped, barred, nobody, HONEST),),
        ),
    )


def _entry(study: Study, cell: str, by: Measure = ACCURACY) -> str:
    found = study.results.estimate(cell, by)
    return f"{found.mean:.3f} ± {found.std:.3f}" if found.count else "-"


def _by_defence(study: Study) -> str:
    rows = [["attack", *DEFENCES]]
    rows += [[a, *(_entry(study, f"{a}: {d}") for d in DEFENCES)] for a in SPOILT]
    return Table(rows).markdown()


def _by_rule(study: Study) -> str:
    rows = [["rule", *_LYING, "liars' share of turns"]]
    for chosen_by in RULES:
        turns = study.results.estimate(f"{chosen_by}, {_LYING[-1]}", TURNS.measure)
        rows.append(
            [
                chosen_by,
                *(_entry(study, f"{chosen_by}, {what}") for what in _LYING),
                f"{TURNS.show(turns.mean)} %",
            ]
        )
    return Table(rows).markdown()


def _by_way(study: Study) -> str:
    rows = [["attack", "way", "no attack", "attacked"]]
    for attack, ways in (("labels turned round", WAYS), ("faked affinity", AFFINITY)):
        rows += [
            [
                attack,
                way,
                *(_entry(study, f"{way}, {what}", HONEST) for what in ("no attack", "attacked")),
            ]
            for way in ways
        ]
    return Table(rows).markdown()
