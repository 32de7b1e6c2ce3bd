"""One config per method in which it visibly works, and its baseline, on data of the package."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """A method, where it helps."""

    about: str  # the situation, in one line
    config: str  # the run config of the situation
    # method, without: what is set for the method, and what for its baseline
    method: str
    without: str
    baseline: str  # what the baseline is, in words
    look: str  # what to look at in the report
    own: bool = False  # whether clients' accuracy on their own data is what counts


_TEXT = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
DEMOS = {name: Demo(**told) for name, told in tomllib.loads(_TEXT).items()}
