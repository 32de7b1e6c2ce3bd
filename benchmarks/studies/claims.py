"""A paper's claims, and what the records say of each.

A claim is tested in one or more places. Every test is a paired difference over seeds; the p-values
of all tests of a page are corrected together by Holm's method, because a page that asks twenty
questions finds something by chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...tools.experiments.measures import Measure, Rows
from ...tools.experiments.statistics import Difference, difference
from .study import Study

Outcome = Literal["above", "level", "below", "not measured"]

LEVEL = 0.05
ENOUGH_SEEDS = 5


@dataclass(frozen=True, eq=False)
class Trial:
    """One place in which a claim is tested: a cell against another.

    Attributes
    ----------
    where : str
        The place, in words.
    study : Study
        Whose records are read.
    cell, baseline : str
        Which of its cells are compared.
    measure : Measure
        By what.
    scale : float
        What differences are multiplied by for the page; negative if less is better.
    paper : float, optional
        The difference that the paper reports, in the page's unit.
    baseline_measure : Measure, optional
        Of the baseline, if it is another.
    unit : str
        Of the difference, if it is not the page's; the picture leaves such tests out.
    ratio : bool
        Whether the page shows a ratio: the measures are then logarithms.
    """

    where: str
    study: Study
    cell: str
    baseline: str
    measure: Measure
    scale: float = 100.0
    paper: float | None = None
    baseline_measure: Measure | None = None
    unit: str = ""
    ratio: bool = False

    @cached_property
    def found(self) -> Difference:
        """The paired difference, in the page's unit; more is better."""
        results = self.study.results
        plain = difference(
            results.values(self.cell, self.measure),
            results.values(self.baseline, self.baseline_measure or self.measure),
        )
        low, high = sorted((plain.low * self.scale, plain.high * self.scale))
        return Difference(plain.mean * self.scale, low, high, plain.p_value, plain.count)

    @property
    def few(self) -> bool:
        """Whether there are too few seeds for a verdict."""
        return 0 < self.found.count < ENOUGH_SEEDS

    @property
    def seeds(self) -> str:
        """How many seeds there are, if they are few."""
        count = self.found.count
        return f" ({count} seed{'s' * (count > 1)})" if self.few else ""

    def text(self) -> str:
        """Return the difference with its 95 % interval, and the number of seeds if it is low."""
        found = self.found
        if not found.count:
            return "not measured"
        mean, low, high = (self._shown(value) for value in (found.mean, found.low, found.high))
        interval = f" [{low}, {high}]" if found.count > 1 else ""
        return f"{mean}{interval} {self.unit}".rstrip() + self.seeds

    def _shown(self, value: float) -> str:
        return f"{math.exp(value):.2g}" if self.ratio else f"{value:+.1f}"


@dataclass(frozen=True)
class Claim:
    """What a paper says, and where that is tested.

    ``expect`` is what must come out: better (``above``) or not worse (``not below``).
    """

    says: str
    tests: tuple[Trial, ...]
    expect: Literal["above", "not below"] = "above"


def logarithm(measure: Measure) -> Measure:
    """Return a measure's logarithm, so that differences are ratios.

    >>> round(logarithm(Measure((), lambda rows: 100.0)).of([]), 3)
    4.605
    """

    def value(rows: Rows) -> float | None:
        found = measure.of(rows)
        return None if found is None else math.log(found)

    return Measure(measure.metrics, value)


NOTHING = Measure((), lambda rows: 0.0)  # as a baseline: is there anything at all?


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are (Holm, 1979); those unknown stay so.

    >>> [round(p, 3) for p in holm([0.01, 0.04, math.nan, 0.03])]
    [0.03, 0.06, nan, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected, highest = [math.nan] * len(p_values), 0.0
    for rank, (p, position) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[position] = highest
    return corrected


def outcomes(claims: Sequence[Claim]) -> dict[Trial, Outcome]:
    """Return what each test of a page says, after the correction for all of them."""
    tests = [test for claim in claims for test in claim.tests]
    corrected = holm([test.found.p_value for test in tests])
    return {t: outcome(t.found.mean, p) for t, p in zip(tests, corrected, strict=True)}


def outcome(mean: float, p_value: float) -> Outcome:
    """Return what a difference and its corrected p-value say.

    >>> outcome(2.5, 0.01), outcome(-2.5, 0.01), outcome(2.5, 0.2), outcome(math.nan, math.nan)
    ('above', 'below', 'level', 'not measured')
    """
    if math.isnan(p_value):
        return "not measured"
    if p_value >= LEVEL:
        return "level"
    return "above" if mean > 0 else "below"


def verdict(claim: Claim, found: Mapping[Trial, Outcome]) -> str:
    """Return held, held in part, did not hold, or not shown.

    That something is not worse does not hold where the interval lies below zero, corrected or not:
    a correction that asks for strong evidence must not hide harm. Tests with fewer than five seeds
    do not count where others have as many; a verdict on nothing else is preliminary.
    """
    tested = [test for test in claim.tests if found[test] != "not measured"]
    measured = [test for test in tested if not test.few] or tested
    if not measured:
        return "not measured"
    if claim.expect == "above":
        good = [found[test] == "above" for test in measured]
    else:
        good = [test.found.high >= 0 for test in measured]
    if all(good):
        word = "held"
    elif any(good):
        word = "held in part"
    elif claim.expect == "not below" or "below" in [found[test] for test in measured]:
        word = "did not hold"
    else:
        word = "no difference shown"
    return f"{word} (preliminary)" if measured[0].few else word


def rule(claims: Sequence[Claim]) -> str:
    """Return how verdicts follow from differences, in words."""
    found = outcomes(claims)
    count = sum(each != "not measured" for each in found.values())
    few = any(test.few for test in found)
    return (
        f"Intervals are of single differences. A verdict asks more, because {count} comparisons"
        " find something by chance: a difference counts if it stands after Holm's correction for"
        " all of them. So no difference may be shown where some intervals exclude zero. *Held*: in"
        " every place; *held in part*: in some; *did not hold*: in none, and worse in at least one."
        " That nothing is worse holds where no interval lies below zero, without a correction."
    ) + (" Places with fewer than five seeds do not count for a verdict." if few else "")


def claims_table(claims: Sequence[Claim]) -> str:
    """Return the claims with their tests and verdicts, as Markdown."""
    found = outcomes(claims)
    shows_papers = any(test.paper is not None for claim in claims for test in claim.tests)
    heads = ["claim", "verdict", "tested on", "difference", *(["paper"] if shows_papers else [])]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for claim in claims:
        for position, test in enumerate(claim.tests):
            says, word = (claim.says, f"**{verdict(claim, found)}**") if not position else ("", "")
            paper = "" if test.paper is None else f"{test.paper:+g}"
            cells = [says, word, test.where, test.text(), *([paper] if shows_papers else [])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
