"""The reference: every public name is on a page, with its example, and nothing private."""

import doctest
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from forager.core.log.events import EVENTS, read_event
from forager.core.methods.catalogue import methods
from forager.core.methods.selector import Selector
from forager.strategies import layers
from forager.strategies.layers.base import Layer

import forager

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "docs"))
SHOWN = [
    name
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


def found(name: str) -> Any:
    """Return what a page shows under this name."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def public() -> set[Any]:
    """Return what users name in their own code, and what a log holds."""
    rules = methods("client-selector").values()
    names = [each.name for each in walk_packages(layers.__path__, f"{layers.__name__}.")]
    inside = [vars(import_module(name)).values() for name in names]
    classes = [each for values in inside for each in values if inspect.isclass(each)]
    return {
        *(getattr(forager, name) for name in forager.__all__),
        *(
            found(f"forager.{rule.core.replace(':', '.')}")
            for rule in rules
            if isinstance(rule, Selector)
        ),
        *(each for each in classes if issubclass(each, Layer)),
        # A comparison keeps a meter of its own in its log: nobody else reads it.
        *(each for each in EVENTS.values() if each.__module__ == read_event.__module__),
    }


def test_all_that_is_public_is_shown_once() -> None:
    shown = [found(name) for name in SHOWN]
    assert {each.__name__ for each in public() - set(shown)} == set()
    assert len(set(shown)) == len(shown)


def test_a_name_is_shown_as_users_import_it() -> None:
    short = {name for name in SHOWN if name.count(".") == 1}
    assert short == {f"forager.{name}" for name in forager.__all__}


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_documented_and_public(name: str) -> None:
    shown = found(name)
    assert inspect.getdoc(shown), name
    assert not any(part.startswith("_") for part in name.split("."))
    if name.count(".") == 1:
        assert ">>> " in shown.__doc__


def test_the_examples_of_how_docstrings_are_shown() -> None:
    assert doctest.testmod(import_module("docstrings")).failed == 0
