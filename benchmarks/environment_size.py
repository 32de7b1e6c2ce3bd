"""How much an installation takes: MB of the packages that the distribution and each extra need.

``python -m forager.benchmarks.environment_size`` follows the requirements of what is installed in
this environment, and adds up the files of each package.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from ..tools.experiments.tables import Table

OURS = "forager-fl"
KINDS = {
    "a device": "",
    "a device with images": "vision",
    "a server": "server",
    "simulation": "simulation",
    "all of it, with images": "simulation,vision",
}


@cache
def size(name: str) -> int:
    """Return the bytes of a package's files."""
    paths = (Path(str(file.locate())) for file in distribution(name).files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """Return the names of all packages that some requirements bring, those included."""
    todo, found = list(requirements), set[tuple[str, str]]()
    while todo:
        wanted = todo.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for extra in {"", *wanted.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            for text in distribution(name).requires or ():
                below = Requirement(text)
                if below.marker is None or below.marker.evaluate({"extra": extra}):
                    todo.append(below)
    return {name for name, _ in found}


def main() -> None:
    """Print a row per kind of installation."""
    rows = [["for", "extras", "packages", "MB", "of which PyTorch"]]
    for kind, extras in KINDS.items():
        names = needed([Requirement(f"{OURS}[{extras}]")])
        total, torch = sum(map(size, names)) / 1e6, size("torch") / 1e6
        rows.append([kind, extras or "none", str(len(names)), f"{total:,.0f}", f"{torch:,.0f}"])
    print(Table(rows).markdown())


if __name__ == "__main__":
    main()
