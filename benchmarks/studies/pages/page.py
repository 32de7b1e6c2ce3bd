"""The page of one paper: verdict, picture and three sentences; claims and tables to unfold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....core.config import default_config
from ....core.config.overrides import toml_value
from ....tools.experiments.tables import Table
from ...sweeps.tables import Column, summary_table
from ..claims import (
    ENOUGH_SEEDS,
    Claim,
    Outcome,
    Trial,
    claims_table,
    outcomes,
    rule,
    tally,
    verdict,
)
from ..figures import draw_claims, draw_curves, draw_differences
from ..study import Study

_DIAMONDS = " Green diamonds: the paper's numbers."
_AGAIN = """\
Every number here comes from `benchmarks/records/{key}-*.jsonl`.

```
make results                     # this page from the records, in seconds
make results-rerun PAPER={key}    # all runs again, in hours; continues if stopped
```"""


@dataclass(frozen=True)
class Curves:
    """A picture of curves: cells by panel and method."""

    study: Study
    metric: str
    label: str
    panels: Mapping[str, Mapping[str, str]]

    @property
    def counts(self) -> list[int]:
        """How many runs each cell has; those without are left out."""
        cells = {cell for panel in self.panels.values() for cell in panel.values()}
        return [
            len(self.study.results.runs[cell]) for cell in cells if self.study.results.runs[cell]
        ]

    def caption(self) -> str:
        """Return what the picture shows."""
        few = min(self.counts) < ENOUGH_SEEDS
        return (
            f"*{self.label[0].upper()}{self.label[1:]} over rounds, mean and 95 % interval"
            f"{' (none with fewer than five seeds)' if few else ''}. {self.study.setting}*"
        )


@dataclass(frozen=True)
class Page:
    """What the page of a paper says.

    Attributes
    ----------
    key, title : str
        The name of its file, and its heading.
    cite : str
        The paper.
    answer : tuple of str
        Three sentences: what held and where, what did not, what to use.
    claims : tuple of Claim
        What the paper says, with tests.
    unit : str
        Of the differences.
    curves : tuple of Curves
        Pictures.
    tables : dict
        Columns of the table of each study, by its name.
    studies : list of Study
        All that it is made from.
    more : dict
        Sections besides, by their headings.
    """

    key: str
    title: str
    cite: str
    answer: tuple[str, str, str]
    claims: tuple[Claim, ...]
    unit: str
    curves: tuple[Curves, ...]
    tables: Mapping[str, Sequence[Column]]
    studies: Sequence[Study] = field(default_factory=list)
    more: Mapping[str, str] = field(default_factory=dict)

    def tests(self) -> list[Trial]:
        """Return the tests of all claims."""
        return [test for claim in self.claims for test in claim.tests]

    def outcomes(self) -> dict[Trial, Outcome]:
        """Return what each test says."""
        return outcomes(self.claims)

    def undecided(self) -> str:
        """Return the claims of which the records do not say whether they hold."""
        found = self.outcomes()
        said = (c.says for c in self.claims if verdict(c, found).startswith(("undecided", "not m")))
        return "; ".join(f"{words[0].lower()}{words[1:]}" for words in said)

    def draw(self, folder: Path) -> list[Path]:
        """Draw its pictures."""
        found = self.outcomes()
        whole = [
            draw(self.claims, found, self.unit, folder / f"{self.key}-{name}.svg")
            for draw, name in ((draw_differences, "claims"), (draw_claims, "short"))
        ]
        more = [
            draw_curves(
                c.study.results, c.panels, c.metric, c.label, folder / f"{c.study.name}.svg"
            )
            for c in self.curves
            if c.counts
        ]
        return [*whole, *more]

    def short(self) -> str:
        """Return the section on "What we found"."""
        lines = [
            f"## {self.title}",
            "",
            f"{tally(self.claims)} {' '.join(self.answer)}",
            "",
            *([f"Not decided: {self.undecided()}.", ""] if self.undecided() else []),
            f"[The claims one by one]({self.key}.md); [how it works](../methods/{self.key}.md).",
        ]
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the whole page: what is needed first, all else to unfold."""
        held, did_not, use = self.answer
        claims = "\n\n".join(
            [
                f"{self.cite}",
                rule(self.claims),
                claims_table(self.claims),
                f"![Differences with 95 % intervals]({self.key}-claims.svg)",
                self._caption(),
            ]
        )
        parts = [
            f"# {self.title}: what we found",
            f"**Verdict.** {tally(self.claims)}",
            f"**Should I use it?** {use}",
            f"{held} {did_not}",
            *([f"**Not decided:** {self.undecided()}."] if self.undecided() else []),
            f"![The claims, with verdicts and 95 % intervals]({self.key}-short.svg)",
            f"*{self._legend()}*",
            unfolded("The claims one by one", claims),
            unfolded("What ran under each name", names_table(self.studies)),
            *(f"## {head}\n\n{unfolded('Table', text)}" for head, text in self.more.items()),
            "## Curves and tables",
            *self._figures(),
            *(folded(study, self.tables[study.name]) for study in self.studies),
            unfolded("Run it again", _AGAIN.format(key=self.key)),
        ]
        return "\n\n".join(parts) + "\n"

    def _caption(self) -> str:
        return (
            f"*{self.unit[0].upper()}{self.unit[1:]}: mean and 95 % interval of paired differences"
            f" over seeds. {self._legend()}*"
        )

    def _legend(self) -> str:
        found = self.outcomes()
        few = any(test.few for test in found)
        papers = any(test.paper is not None for test in found)
        return (
            "Blue: better by more than chance. Orange: worse. Grey: not shown to be either."
            f"{' Hollow: fewer than five seeds.' if few else ''}{_DIAMONDS if papers else ''}"
        )

    def _figures(self) -> list[str]:
        return [
            unfolded(
                f"Curves of {c.study.name}",
                f"![{c.label} over rounds]({c.study.name}.svg)\n\n{c.caption()}",
            )
            for c in self.curves
            if c.counts
        ]


def names_table(studies: Sequence[Study]) -> str:
    """Return by which keys of a run config the rows of each study differ."""
    lines = [["study", "name", "run config"]]
    for study in studies:
        places: dict[str, list[set[tuple[str, Any]]]] = {}
        for cell in study.cells:
            places.setdefault(cell.name.rpartition(": ")[0], []).append(set(cell.config.items()))
        keys: dict[str, set[tuple[str, Any]]] = {}
        for cell in study.cells:
            place, _, name = cell.name.rpartition(": ")
            first, *others = places[place]
            own = set(cell.config.items()) - first.intersection(*others)
            keys[name] = keys.get(name, own) & own
        for name, items in keys.items():
            told = [(key, value) for key, value in sorted(items) if key in default_config()]
            words = " ".join(f"{key}={toml_value(value)}" for key, value in told)
            lines.append([study.name, name, f"`{words}`" if words else ""])
    return Table(lines).markdown()


def unfolded(heading: str, text: str) -> str:
    """Return a text under a heading that unfolds it."""
    return f'<details markdown="1"><summary>{heading}</summary>\n\n{text}\n\n</details>'


def folded(study: Study, columns: Sequence[Column]) -> str:
    """Return the table of a study, to unfold."""
    results = study.results
    cells = [cell for cell in results.cells if results.runs[cell]]
    if not cells:
        missing = f"`python -m forager.benchmarks.studies run {study.paper} --study {study.name}`"
        return f"`{study.name}`: not measured yet; {missing} does it."
    table = summary_table(results, columns, cells=cells).markdown()
    runs = sum(len(found) for found in results.runs.values())
    seconds = sum(run.seconds for found in results.runs.values() for run in found.values())
    heading = f"{study.name}: {runs} runs, {seconds / 60:.0f} minutes"
    return unfolded(heading, f"{study.setting}\n\n{table}")
