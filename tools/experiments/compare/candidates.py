"""The strategies to compare: presets of this version, or settings with a name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.config import Scalar, default_config, read_config
from ....core.config.overrides import parse_overrides, toml_value
from ....core.config.reading import nearest
from ....core.config.run_config import AXIS_DEFAULTS
from ....core.methods.catalogue import axis_defaults, presets

ALL = "all"
BASELINE = "fedavg"
_PARTS = re.compile(r"\s*([\w-]+)\s+([\w.-]+\s*=.*)")  # a preset and what is set beside it


class CandidateError(ValueError):
    """A strategy that cannot be compared."""


@dataclass(frozen=True)
class Candidate:
    """A name and the run-config keys that make it what it is."""

    name: str
    settings: Mapping[str, Scalar]


def parse_candidates(texts: Sequence[str]) -> list[Candidate]:
    """Read what to compare: ``all``, presets, a preset with changes, or ``name: key=value ...``."""
    candidates: list[Candidate] = []
    for text in texts:
        parts = _PARTS.fullmatch(text)
        name, colon, settings = text.partition(":")
        if parts:
            base, changes = _preset(parts[1]), parse_overrides([parts[2]])
            shown = " ".join(f"{key}={value}" for key, value in changes.items())
            candidates.append(Candidate(f"{base.name} {shown}", {**base.settings, **changes}))
        elif colon:
            candidates.append(Candidate(name.strip(), parse_overrides([settings])))
        else:
            names = [part.strip() for part in text.split(",") if part.strip()]
            candidates += map(_preset, presets() if names == [ALL] else names)
    counts = [candidate.name for candidate in candidates]
    for name in counts:
        if not name or counts.count(name) > 1:
            raise CandidateError(f"strategy {name!r}: each needs its own name")
    return candidates


def what_it_sets(settings: Mapping[str, Scalar]) -> str:
    """Return how a strategy differs from FedAvg, the parts of its preset included."""
    usual = {**axis_defaults(), "downlink": AXIS_DEFAULTS["downlink"]}
    axes = read_config({**default_config(), **settings}).axes()
    parts: dict[str, Scalar] = {axis: axes[axis] for axis in usual if axes[axis] != usual[axis]}
    parts |= {key: value for key, value in settings.items() if key not in (*usual, "strategy")}
    return " ".join(f"{key}={toml_value(value)}" for key, value in parts.items())


def _preset(name: str) -> Candidate:
    known = list(presets())
    if name not in known:
        raise CandidateError(
            f"strategy {name!r}: unknown or not in this version; there are {', '.join(known)}; "
            f"write \"name: key='value'\" for your own, or \"fedavg uplink='top-k'\" for a preset "
            f"with changes{nearest(name, known)}"
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
