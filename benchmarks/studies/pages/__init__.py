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
sets at less than half of its bytes; its page says where it fails. The five papers behind it are
judged below, each claim by one comparison; names of papers run the papers, our own are marked
"ours". Everything ran on two cores: smaller networks, fewer clients and fewer rounds than in the
papers.

| paper | should you use it? |
| --- | --- |
"""

_TAIL = """## Other measurements

- [Real federations](real.md): hospitals, stations, speakers, devices
- [Regression and next tokens](kinds.md): the methods that need no classes
- [The arena](arena.md): every rule against the plain one of its kind, and your own
- [Does a preset harm?](no-harm.md) Every preset on eight data sets
- [Attackers](security.md)
- [Speed and memory](speed.md)
- [Deployment](deployment.md): faults, bytes, many clients
- [What `forager compare` costs](compare.md)

## How verdicts are made

A claim has one primary comparison, a paired difference over seeds: the one closest to the paper's
setting. It decides at the 5 % level; other places of the same claim are corrected among themselves
(Holm). *Held*, *held in part*, *refuted*, or *undecided*, and then how many seeds would decide. A
difference below a point is too small to matter. With fewer than five seeds a verdict is called
preliminary.

Each run is a line in `benchmarks/records/`: config, seed, metrics by round, bytes, seconds, commit
and versions. `make results` makes these pages and pictures from those lines; a test holds that they
agree. `python -m forager.benchmarks.studies status` lists what is missing, `run` does it, and `make
results-rerun PAPER=gcfl` does all of it again.
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
