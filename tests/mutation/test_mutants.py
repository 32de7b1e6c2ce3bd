"""The runner itself: what it changes, and which tests it finds."""

from pathlib import Path

from concerned import concerning
from mutants import mutants_of

SOURCE = '''
LIMIT = 3

@cache
def first(values: list[int] = [1], *, most: int = 5) -> int:
    """Return one of 2."""
    check(values)
    _log.info("%d", 1)
    if not values and most >= 2:
        raise ValueError(f"{most + 1} is too much")
    return min(values) + len("é")
'''


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of(source, Path("a.py"))]


def test_what_computes_is_changed_and_what_words_errors_is_not() -> None:
    assert changes(SOURCE) == [
        "check(values)  ->  pass",
        "not values and most >= 2  ->  not values or most >= 2",
        "not values  ->  values",
        "most >= 2  ->  most > 2",
        "2  ->  3",
        "min(values)  ->  max(values)",
        "min(values) + len('é')  ->  min(values) - len('é')",
    ]


def test_a_mutant_differs_in_one_place_and_can_be_compiled() -> None:
    lines = SOURCE.splitlines()
    for mutant in mutants_of(SOURCE, Path("a.py")):
        compile(mutant.source, "a.py", "exec")
        changed = mutant.source.splitlines()
        assert [n for n, (a, b) in enumerate(zip(lines, changed, strict=True), 1) if a != b] == [
            mutant.line
        ]


def test_the_tests_that_import_a_module_come_first() -> None:
    found = concerning(Path("selectors/client_selectors/age.py"), 3)
    doctest, *files = found
    assert doctest == "tests/unit/test_doctests.py::test_examples[selectors.client_selectors.age]"
    assert "tests/unit/selectors/client_selectors/test_age.py" in files
    assert len(files) == 3


def test_of_many_tests_that_import_a_module_those_named_after_it_come_first() -> None:
    _, first, *_ = concerning(Path("selectors/client_selectors/base.py"), 3)
    assert first == "tests/unit/selectors/client_selectors/test_selector_base.py"


def test_a_module_that_is_loaded_by_name_has_tests_too() -> None:
    assert "tests/conformance/test_layers.py" in concerning(Path("strategies/cohorts/ifca.py"), 9)
