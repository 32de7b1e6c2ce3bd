"""All studies, by the paper that they are about."""

from ...tools.experiments.records import SweepError
from . import (
    arena,
    auxo,
    compare,
    cosage,
    diagnose,
    forager,
    gcfl,
    ios,
    kinds,
    no_harm,
    ode,
    real,
    security,
    tiny,
)
from .study import Studies, Study

PAPERS: dict[str, Studies] = {
    "cosage": cosage.studies,
    "gcfl": gcfl.studies,
    "ode": ode.studies,
    "auxo": auxo.studies,
    "ios": ios.studies,
    "forager": forager.studies,
    "diagnose": diagnose.studies,
    "no-harm": no_harm.studies,
    "real": real.studies,
    "kinds": kinds.studies,
    "security": security.studies,
    "arena": arena.studies,
    "compare": compare.studies,
    "tiny": tiny.studies,
}


def studies(paper: str = "") -> list[Study]:
    """Return the studies of a paper, or all."""
    if paper and paper not in PAPERS:
        raise SweepError(f"PAPER = {paper!r} is not known; there are {list(PAPERS)}")
    return [study for name, make in PAPERS.items() if paper in ("", name) for study in make()]
