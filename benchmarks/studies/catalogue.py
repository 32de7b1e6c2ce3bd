"""All studies, by the paper that they are about."""

from ...tools.experiments.records import SweepError
from . import no_harm
from .study import Studies, Study

PAPERS: dict[str, Studies] = {
    "no-harm": no_harm.studies,
}


def studies(paper: str = "") -> list[Study]:
    """Return the studies of a paper, or all."""
    if paper and paper not in PAPERS:
        raise SweepError(f"PAPER = {paper!r} is not known; there are {list(PAPERS)}")
    return [study for name, make in PAPERS.items() if paper in ("", name) for study in make()]
