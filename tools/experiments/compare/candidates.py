"""The strategies to compare: presets of this version, or settings with a name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.config import Scalar, default_config, read_config
from ....core.config.overrides import parse_overrides
from ....core.config.reading import nearest
from ....core.methods.catalogue import presets

ALL = "all"
BASELINE = "fedavg"


class CandidateError(ValueError):
    """A strategy that cannot be compared."""


@dataclass(frozen=True)
class Candidate:
    """A name and the run-config keys that make it what it is."""

    name: str
    settings: Mapping[str, Scalar]


def available_presets() -> list[str]:
    """Return the presets, FedAvg first.

    >>> available_presets()[:2]
    ['fedavg', 'auxo']
    """
    return list(presets())


def parse_candidates(texts: Sequence[str]) -> list[Candidate]:
    """Read what to compare: ``all``, presets, or ``name: key=value ...``.

    >>> [candidate.name for candidate in parse_candidates(["fedprox", "fedavg, fedyogi"])]
    ['fedprox', 'fedavg', 'fedyogi']
    >>> parse_candidates(["oldest first: client-selector='aoi'"])
    [Candidate(name='oldest first', settings={'client-selector': 'aoi'})]
    >>> parse_candidates(["fedporx"])
    Traceback (most recent call last):
    forager...CandidateError: strategy 'fedporx': unknown or not in this version; ...
    """
    candidates: list[Candidate] = []
    for text in texts:
        name, colon, settings = text.partition(":")
        if colon:
            candidates.append(Candidate(name.strip(), parse_overrides([settings])))
            continue
        names = [part.strip() for part in text.split(",") if part.strip()]
        for name in available_presets() if names == [ALL] else names:
            candidates.append(_preset(name))
    counts = [candidate.name for candidate in candidates]
    for name in counts:
        if not name or counts.count(name) > 1:
            raise CandidateError(f"strategy {name!r}: each needs its own name")
    return candidates


def _preset(name: str) -> Candidate:
    known = available_presets()
    if name not in known:
        raise CandidateError(
            f"strategy {name!r}: unknown or not in this version; there are {', '.join(known)}; "
            f"write \"name: key='value'\" for your own{nearest(name, known)}"
        )
    return Candidate(name, {"strategy": name})


def check(candidates: Sequence[Candidate], common: Mapping[str, Scalar]) -> None:
    """Refuse settings that no run could have, before anything is run."""
    for candidate in candidates:
        read_config({**default_config(), **common, **candidate.settings})


def baseline_of(candidates: Sequence[Candidate]) -> str:
    """Return the one that the others have to beat: FedAvg if it takes part, else the first."""
    names = [candidate.name for candidate in candidates]
    return BASELINE if BASELINE in names else names[0]
