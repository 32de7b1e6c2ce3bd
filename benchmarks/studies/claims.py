"""A paper's claims, and what the records say of each.

Every claim has one primary comparison, the first of its tests: the one closest to the paper's own
setting, whatever came out (the first with five seeds, if that one has fewer). It decides at the 5 %
level. The other places of the same claim are corrected among themselves by
Holm's method; nothing is corrected over a page, on which each claim is a question of its own. A
difference below `Trial.margin` (a point, or a tenth of a ratio) is too small to matter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from scipy import stats

from ...tools.experiments.measures import Measure, Rows
from ...tools.experiments.statistics import Difference, difference
from .study import Study

Outcome = Literal["above", "level", "below", "not measured"]
Word = Literal["held", "refuted", "undecided", "not measured"]

LEVEL = 0.05
POWER = 0.8
ENOUGH_SEEDS = 5
MOST_SEEDS = 1000
POINT, TENTH = 1.0, math.log(1.1)


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
    smallest : float, optional
        The smallest difference that matters, if it is neither a point nor a tenth of a ratio.
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
    smallest: float | None = None

    @property
    def margin(self) -> float:
        """The smallest difference that matters, in the page's unit."""
        return self.smallest or (TENTH if self.ratio else POINT)

    @cached_property
    def found(self) -> Difference:
        """The paired difference, in the page's unit; more is better."""
        runs = self.study.results.runs
        if self.cell not in runs or self.baseline not in runs:
            return difference({}, {})
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

    def would_decide(self) -> int | None:
        """Return how many seeds would decide: 80 % power at the spread that was seen.

        The difference to be told from none is the one that was seen, or the smallest that matters
        if that is larger. None with one seed, whose spread is unknown, and above 1,000.
        """
        found = self.found
        if found.count < 2:
            return None
        half = stats.t.ppf(1 - LEVEL / 2, found.count - 1) / math.sqrt(found.count)
        spread = (found.high - found.low) / 2 / half
        return seeds_for(max(abs(found.mean), self.margin), float(spread))


def seeds_for(effect: float, spread: float) -> int | None:
    """Return the seeds with which a paired t-test finds an effect four times in five.

    >>> seeds_for(2.0, 2.0), seeds_for(1.0, 2.0), seeds_for(1.0, 400.0)
    (10, 34, None)
    """
    for count in range(2, MOST_SEEDS + 1):
        critical = stats.t.ppf(1 - LEVEL / 2, count - 1)
        shift = effect * math.sqrt(count) / max(spread, 1e-12)
        if shift > 50 or stats.nct.sf(critical, count - 1, shift) >= POWER:
            return count
    return None


@dataclass(frozen=True)
class Claim:
    """What a paper says, and where that is tested: first by the primary comparison.

    ``expect`` is what must come out: better (``above``) or not worse (``not below``); in the
    primary comparison, or ``everywhere`` if that is what is claimed.
    """

    says: str
    tests: tuple[Trial, ...]
    expect: Literal["above", "not below"] = "above"
    everywhere: bool = False

    @property
    def primary(self) -> Trial:
        """The comparison that decides: the first, or the first that has enough seeds."""
        enough = [test for test in self.tests if test.found.count >= ENOUGH_SEEDS]
        return (enough or [t for t in self.tests if t.found.count] or list(self.tests))[0]

    @property
    def ours(self) -> bool:
        """Whether it is about a method of ours."""
        return self.says.startswith("Ours")


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
    """Return what each test says: the primary alone, the others corrected within their claim."""
    found: dict[Trial, Outcome] = {}
    for claim in claims:
        primary = claim.primary
        others = [test for test in claim.tests if test is not primary]
        corrected = holm([test.found.p_value for test in others])
        tests = dict(zip([primary, *others], [primary.found.p_value, *corrected], strict=True))
        found |= {test: outcome(test.found.mean, tests[test]) for test in claim.tests}
    return found


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


def word(claim: Claim, test: Trial, found: Outcome) -> Word:
    """Return what one test says of its claim.

    A gain is refuted where the interval excludes a gain that matters. That nothing is lost is held
    where the interval excludes a loss that matters, and refuted where it lies below zero, whatever
    a correction says: what asks for strong evidence must not hide harm.
    """
    if found == "not measured":
        return "not measured"
    value, margin = test.found, test.margin
    if claim.expect == "above":
        if found == "above":
            return "held"
        return "refuted" if found == "below" or value.high < margin else "undecided"
    if value.low > -margin:
        return "held"
    return "refuted" if value.high < 0 else "undecided"


def verdict(claim: Claim, found: Mapping[Trial, Outcome]) -> str:
    """Return held, held in part, refuted or undecided; what rests on few seeds is preliminary.

    The primary comparison decides. *In part*: it held, but another place refutes it (or does not
    hold, where the claim is about all places); or it did not, but another place holds.
    """
    words = {t: word(claim, t, found[t]) for t in claim.tests}
    first = words[claim.primary]
    if first == "not measured":
        only = claim.primary.found.count == 1
        return "undecided (one seed)" if only else "not measured"
    others = {words[t] for t in claim.tests if t is not claim.primary and not t.few}
    if first == "held":
        against = others - {"held"} if claim.everywhere else others & {"refuted"}
        said = "held in part" if against else "held"
    elif "held" in others:
        said = "held in part"
    else:
        said = "refuted" if claim.everywhere and "refuted" in others else first
    return f"{said} (preliminary)" if claim.primary.few else said


def what_would_decide(claim: Claim, found: Mapping[Trial, Outcome]) -> str:
    """Return how many seeds the primary comparison would need, if it is undecided."""
    if not verdict(claim, found).startswith("undecided"):
        return ""
    count = claim.primary.would_decide()
    if count is None:
        known = claim.primary.found.count > 1
        return "more than 1,000 seeds would decide" if known else "five seeds would be needed"
    return f"about {count} seeds would decide"


def tally(claims: Sequence[Claim]) -> str:
    """Return how many claims held, in words: the paper's, then ours."""
    found, said = outcomes(claims), []
    order = ("held", "held in part", "refuted", "undecided", "not measured")
    for ours, whose in ((False, "the paper's {} claims"), (True, "our own {}")):
        verdicts = [verdict(c, found).split(" (")[0] for c in claims if c.ours == ours]
        counts = [f"{verdicts.count(w)} {w}" for w in order if w in verdicts]
        if verdicts:
            said.append(f"Of {whose.format(len(verdicts))}: {', '.join(counts)}.")
    return " ".join(said)


def rule(claims: Sequence[Claim], closest: str = "the one closest to the paper's setting") -> str:
    """Return how verdicts follow from differences, in words."""
    few = any(test.few for claim in claims for test in claim.tests)
    return (
        f"The first comparison of each claim, in bold, is its primary one: {closest}, whatever the"
        " result. It decides at the 5 % level; the other comparisons of the claim are corrected for"
        " their number (Holm). Differences below a point, or a tenth of a ratio, are too small to"
        " matter. *Held*: the primary comparison shows it, and no other shows the opposite (or all"
        " show it, if that is the claim). *Held in part*: one of the two. *Refuted*: the interval"
        " excludes a gain that matters or, for a claim that nothing is lost, lies below zero."
        " *Undecided*: neither; the table gives the number of seeds that would find the observed"
        " difference, or the smallest that matters, four times in five."
    ) + (" Comparisons with fewer than five seeds decide only if no other has more." if few else "")


def claims_table(claims: Sequence[Claim]) -> str:
    """Return the claims with their tests and verdicts, as Markdown."""
    found = outcomes(claims)
    shows_papers = any(test.paper is not None for claim in claims for test in claim.tests)
    heads = ["claim", "verdict", "tested on", "difference", *(["paper"] if shows_papers else [])]
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for claim in claims:
        needed = what_would_decide(claim, found)
        said = f"**{verdict(claim, found)}**{f': {needed}' if needed else ''}"
        for position, test in enumerate(claim.tests):
            paper = "" if test.paper is None else f"{test.paper:+g}"
            where = f"**{test.where}**" if test is claim.primary else test.where
            heading = (claim.says, said) if not position else ("", "")
            cells = [*heading, where, test.text(), *([paper] if shows_papers else [])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
