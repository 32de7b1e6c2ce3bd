"""The pages of docs/results that are made from records, and from nothing else."""

from collections.abc import Sequence
from pathlib import Path

from ....tools.experiments.provenance import ROOT
from ... import speed_records
from . import arena, auxo, blocks, cosage, forager, gcfl, ios, kinds, no_harm, ode, real, security
from .page import Page

FOLDER = ROOT / "docs" / "results"

_HEAD = """# What we found

**What to use.** [`strategy='forager'`](forager.md), the default, is above FedAvg on all eight data
sets at less than half of the bytes; its page shows where it fails. The five papers behind it are
judged below, each claim by one comparison. A paper's name stands for the paper's algorithm; our own
methods are marked "ours". Everything ran on two cores, with smaller networks, fewer clients and
fewer rounds than in the papers.

| paper | should you use it? |
| --- | --- |
"""

_TAIL = """## Other measurements

- [Real federations](real.md): hospitals, stations, speakers, devices
- [Regression and next tokens](kinds.md): the methods that need no classes
- [The arena](arena.md): every rule against the baseline of its kind, and your own
- [Does it harm?](no-harm.md): every preset on eight data sets
- [What attackers cost](security.md): attacks, and what the defences achieve
- [Speed and memory](speed.md): of a round, of the server, of a million clients
- [Deployment](deployment.md): faults, bytes, many clients
- [A comparison of ten strategies](compare.md): what `forager compare` costs

## How verdicts are made

A claim has one primary comparison, a paired difference over seeds: the one closest to the paper's
setting. It decides at the 5 % level; the other comparisons of the claim are corrected for their
number (Holm). A claim *held*, *held in part*, is *refuted*, or is *undecided*; then the table gives
the number of seeds that would decide it. A difference below one point is too small to matter. With
fewer than five seeds a verdict is marked as preliminary.

Each run is a line in `benchmarks/records/`: config, seed, metrics by round, bytes, seconds, commit
and versions. `make results` makes these pages and pictures from those lines; a test checks that
they agree. `python -m forager.benchmarks.studies status` lists missing runs, `run` does them, and
`make results-rerun PAPER=gcfl` repeats all runs of a page.
"""


def pages() -> list[Page]:
    """Return the page of each paper."""
    return [cosage.page(), gcfl.page(), ode.page(), auxo.page(), ios.page()]


def texts(all_pages: Sequence[Page]) -> dict[str, str]:
    """Return the text of every page by its file's name."""
    lines = "".join(f"| [{p.title}]({p.key}.md) | {p.answer[-1]} |\n" for p in all_pages)
    found = _HEAD + lines + "\n" + "\n\n".join(p.short() for p in all_pages) + "\n\n" + _TAIL
    made = {f"{p.key}.md": p.markdown() for p in all_pages}
    made |= {"no-harm.md": no_harm.markdown(), "security.md": security.markdown()}
    made |= {"forager.md": forager.markdown(), "arena.md": arena.markdown()}
    made |= {"real.md": real.markdown(), "kinds.md": kinds.markdown()}
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
