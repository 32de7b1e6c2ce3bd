"""docs/your-own-task.md as a reader follows it: its programs, its commands, a CSV file like its."""

import csv
import re
import runpy
import shlex
from contextlib import chdir
from pathlib import Path

from sklearn.datasets import load_breast_cancer

PAGE = Path(__file__).parents[2] / "docs" / "your-own-task.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
PROGRAMS = [text.removeprefix("# ").split("\n", 1) for language, text in BLOCKS if language]
COMMANDS = [
    shlex.split(line) for language, text in BLOCKS if not language for line in text.splitlines()
]


def command(*start: str) -> list[str]:
    """Return the arguments of the page's first command that starts like this."""
    return next(c[len(start) :] for c in COMMANDS if c[: len(start)] == list(start))


def prepare(folder: Path) -> list[str]:
    """Write the page's programs and a CSV file into a folder, and run the first step there.

    Returns
    -------
    list of str
        The names of the modules that the folder then holds.
    """
    for name, text in PROGRAMS:
        (folder / name).write_text(text)
    data = load_breast_cancer()
    with (folder / "readings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", *(f"x{i}" for i in range(1, 31)), "label"])
        for number, (x, y) in enumerate(zip(data.data, data.target, strict=True)):
            writer.writerow([f"site-{number % 8 + 1}", *x, data.target_names[y]])
    with chdir(folder):
        runpy.run_path("prepare.py")
    return [Path(name).stem for name, _ in PROGRAMS]
