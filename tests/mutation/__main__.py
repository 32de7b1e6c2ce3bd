"""Do the tests notice when a line is wrong?

``python tests/mutation`` changes one place of ``selectors/`` and ``strategies/`` at a time, in
copies of the tree, runs the tests that concern the file, and prints the share of changes that some
test noticed and those that none did. Which places is drawn with a fixed seed. A file, a folder, or
``file.py:120`` limits it to what is named. First the same tests must pass with nothing changed.
"""

import argparse
import importlib.util
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from concerned import ROOT, concerning
from mutants import Mutant, mutants_of
from warm import passes

# What tests do not need: environments, caches and results
LEFT_OUT = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "site")
_WHOLE = 1800.0  # seconds for all tests that concern the sample


def drawn(names: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """Return a sample of the mutants of what is named, in order; all of them if they are fewer."""
    found: list[Mutant] = []
    for name in names:
        place, _, line = name.partition(":")
        files = sorted((ROOT / place).rglob("*.py")) if not line else []
        for file in files or [ROOT / place]:
            path = file.relative_to(ROOT)
            mutants = mutants_of(file.read_text(), path)
            found += [mutant for mutant in mutants if not line or mutant.line == int(line)]
    chosen = random.Random(seed).sample(range(len(found)), min(sample, len(found)))
    return [found[place] for place in sorted(chosen)]


@contextmanager
def copies(count: int) -> Iterator["SimpleQueue[Path]"]:
    """Give copies of the tree, in which files can be changed."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            copy = Path(folder) / str(number)
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
            free.put(copy)
        yield free


@contextmanager
def one_of(free: "SimpleQueue[Path]") -> Iterator[Path]:
    """Give a copy that nobody uses."""
    tree = free.get()
    try:
        yield tree
    finally:
        free.put(tree)


def survives(mutant: Mutant, tree: Path, tests: Sequence[str], limit: float) -> bool:
    """Return whether all tests pass with a mutant in a tree; one that hangs does not survive."""
    file = tree / mutant.path
    before = file.read_text()
    write(file, mutant.source)
    try:
        return passes(tests, tree, limit)
    finally:
        write(file, before)


def write(file: Path, source: str) -> None:
    """Change a file; of two changes within a second Python would not notice the other."""
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
    file.write_text(source)


def survivors(
    mutants: Sequence[Mutant], tests: Mapping[Path, Sequence[str]], workers: int, limit: float
) -> list[Mutant]:
    """Return the mutants that no test notices; told as they are found."""
    with copies(workers) as free, ThreadPoolExecutor(workers) as pool:

        def fails(part: Sequence[str]) -> bool:
            with one_of(free) as tree:
                return bool(part) and not passes(part, tree, _WHOLE)

        def survived(mutant: Mutant) -> bool:
            with one_of(free) as tree:
                found = survives(mutant, tree, tests[mutant.path], limit)
            if found:
                print(f"survived  {mutant}", flush=True)
            return found

        every = sorted({test for chosen in tests.values() for test in chosen})
        if any(pool.map(fails, (every[start::workers] for start in range(workers)))):
            sys.exit("the tests fail with nothing changed")
        return [
            mutant
            for mutant, left in zip(mutants, pool.map(survived, mutants), strict=True)
            if left
        ]


def main() -> None:
    """Print every mutant that no test noticed, and the share of those that one did."""
    parser = argparse.ArgumentParser(prog="python tests/mutation", description=__doc__)
    parser.add_argument("names", nargs="*", default=["selectors", "strategies"])
    parser.add_argument("--sample", type=int, default=150, help="how many places are changed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", type=int, default=12, help="test files per place, the nearest")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of tests per place")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    mutants = drawn(options.names, options.sample, options.seed)
    tests = {path: concerning(path, options.tests) for path in {m.path for m in mutants}}
    started = time.monotonic()
    left = survivors(mutants, tests, options.workers, options.limit)
    share = 100 * (1 - len(left) / max(1, len(mutants)))
    minutes = (time.monotonic() - started) / 60
    print(f"{share:.0f} % of {len(mutants)} changes were noticed, in {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
