"""The pages of docs/results that are made from records, and from nothing else."""

from collections.abc import Sequence
from pathlib import Path

from ....tools.experiments.provenance import ROOT
from ... import speed_records
from . import auxo, blocks, cosage, forager, gcfl, ios, no_harm, ode, security
from .page import Page

FOLDER = ROOT / "docs" / "results"

_HEAD = """# What we found

Five papers, one question each: does it hold here, and should you use it? Names of papers run the
papers; our own are marked "ours". Every picture lists claims, the paper's and ours, with verdicts.
Each line below a claim is a place in which it was tested: the difference to a plain alternative
with its 95 % interval, over seeds. Blue: better by more than chance. Orange: worse. Grey: no
difference shown. Green diamonds are the paper's own numbers, on its own data and networks.
Everything ran on two cores: smaller networks, fewer clients and fewer rounds than in the papers.

**In one line each:**

"""

_TAIL = """## All of it in one strategy

[`strategy='forager'`](forager.md) against FedAvg and what a user would pick, and without its parts.

## Does a preset harm?

[Every preset on eight data sets](no-harm.md), against FedAvg, random samples or a reservoir.

## Other measurements

- [Speed and memory](speed.md)
- [Attackers](security.md)
- [Deployment: faults, bytes, many clients](deployment.md)
- [What `forager compare` costs](compare.md)

## Where the numbers come from

Each run is a line in `benchmarks/records/`: config, seed, metrics by round, bytes, seconds, commit
and versions. `make results` makes these pages and pictures from those lines; a test holds that they
agree. `make results-rerun PAPER=gcfl` does the runs again. Verdicts are paired differences over
seeds, corrected for the number of comparisons on a page (Holm); that nobody is worse off does not
hold where an interval lies below zero, corrected or not. With fewer than five seeds verdicts are
called preliminary.
"""


def pages() -> list[Page]:
    """Return the page of each paper."""
    return [cosage.page(), gcfl.page(), ode.page(), auxo.page(), ios.page()]


def texts(all_pages: Sequence[Page]) -> dict[str, str]:
    """Return the text of every page by its file's name."""
    lines = "".join(f"- [{p.title}]({p.key}.md): {p.answer[-1]}\n" for p in all_pages)
    found = _HEAD + lines + "\n" + "\n\n".join(p.short() for p in all_pages) + "\n\n" + _TAIL
    made = {f"{p.key}.md": p.markdown() for p in all_pages}
    made |= {"no-harm.md": no_harm.markdown(), "security.md": security.markdown()}
    made["forager.md"] = forager.markdown()
    tables = blocks.blocks()
    written = {name: blocks.filled((FOLDER / name).read_text(), tables) for name in blocks.PAGES}
    written["speed.md"] = speed_records.page_text(speed_records.read_records(), written["speed.md"])
    return {"README.md": found, **made, **written}


def write_pages(folder: Path = FOLDER) -> list[Path]:
    """Write all pages and pictures; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    made, written = pages(), []
    for name, text in texts(made).items():
        (folder / name).write_text(text)
        written.append(folder / name)
    pictures = [path for page in made for path in page.draw(folder)]
    return [*written, *pictures, security.draw(folder)]
