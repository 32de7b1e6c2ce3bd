"""Which tests concern a module: those that import it, the nearest first.

A test that imports the module itself comes before one that imports what imports it; of those that
are as near, the tests of the same folder come first. After them come tests that mention its name,
as a run config does, and what all methods have to keep.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("core", "selectors", "strategies", "client_app", "server_app", "tools")
TESTS = ("tests/unit", "tests/conformance")
RUNS = "tests/integration"


def concerning(path: Path, most: int) -> list[str]:
    """Return at most so many test files that concern a file of the product, and its doctests."""
    importers, distance, queue = _importers(), {path: 0}, [path]
    for file in queue:
        for importer in sorted(importers[file] - distance.keys()):
            distance[importer] = distance[file] + 1
            queue.append(importer)
    found = [file for file in queue if file.name.startswith("test_") and _is_test(file)]
    found.sort(
        key=lambda file: (
            distance[file],
            path.stem not in file.stem,  # many files import what rules share: its own tests first
            path.parts[0] not in file.parts,
        )
    )
    found += _mentioning(path.stem) + sorted((ROOT / TESTS[-1]).rglob("test_*.py"))
    near = list(dict.fromkeys((ROOT / file).relative_to(ROOT).as_posix() for file in found))
    examples = ">>>" in (ROOT / path).read_text()
    name = ".".join(path.with_suffix("").parts)
    doctests = [f"tests/unit/test_doctests.py::test_examples[{name}]"] if examples else []
    return doctests + near[:most]


def _mentioning(name: str) -> list[Path]:
    """Return tests with a text that is this name, those of single parts first."""
    word = re.compile(rf"[\"']{re.escape(name).replace('_', '[-_]')}[\"']")
    folders = [ROOT / folder for folder in (*TESTS, RUNS)]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    return [file for file in files if word.search(file.read_text())]


@cache
def _importers() -> dict[Path, set[Path]]:
    """Return for each file those that import it, by paths below the root."""
    found: dict[Path, set[Path]] = defaultdict(set)
    folders = [ROOT / name for name in (*PRODUCT, *TESTS)]
    for file in sorted(file for folder in folders for file in folder.rglob("*.py")):
        importer = file.relative_to(ROOT)
        for imported in _imports(importer):
            found[imported].add(importer)
    return found


def _imports(importer: Path) -> set[Path]:
    source = (ROOT / importer).read_text()
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            base = _base(importer, node)
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("forager.") for alias in node.names}
    places = [importer.parent.as_posix(), *_helper_folders()] if _is_test(importer) else []
    stems = {name.replace(".", "/") for name in names - {""}}
    stems |= {f"{place}/{stem}" for stem in stems for place in places}
    return {_modules()[stem] for stem in stems & _modules().keys()} - {importer}


@cache
def _modules() -> dict[str, Path]:
    """Return every file of the product and of the tests, by its path as an import has it."""
    folders = [ROOT / name for name in (*PRODUCT, *TESTS)]
    files = [file.relative_to(ROOT) for folder in folders for file in folder.rglob("*.py")]
    return {file.with_suffix("").as_posix().removesuffix("/__init__"): file for file in files}


def _base(importer: Path, node: ast.ImportFrom) -> str:
    """Return the module that names are imported from, without ``forager``."""
    module = node.module or ""
    if not node.level:
        return module.removeprefix("forager.")
    package = importer.parts[: -node.level]
    return ".".join([*package, module]).strip(".")


@cache
def _helper_folders() -> list[str]:
    """Return the folders of tests, whose helpers are imported by their names alone."""
    folders = {file.parent for name in TESTS for file in (ROOT / name).rglob("*.py")}
    return sorted(folder.relative_to(ROOT).as_posix() for folder in folders)


def _is_test(file: Path) -> bool:
    return file.parts[0] == "tests"
