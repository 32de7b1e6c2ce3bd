"""Examples of what the functions of tools return: one file per module, as a session in it."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.txt"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_they_are_as_written(file: Path) -> None:
    names = dict(vars(import_module(f"forager.{file.stem}")))
    found = doctest.testfile(
        str(file), module_relative=False, globs=names, optionflags=doctest.ELLIPSIS
    )
    assert found.attempted
    assert not found.failed
