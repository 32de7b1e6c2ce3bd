"""The threat model: every promise names a test that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
FILES = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
LINK = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
ROW = re.compile(r"^\|(?! ---)(.*)\|$", re.MULTILINE)


def sections() -> dict[str, str]:
    """The parts of the page, by title."""
    return dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))


def rows(title: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    return [[cell.strip() for cell in row.split(" | ")] for row in ROW.findall(sections()[title])][
        1:
    ]


HOSTILE = [re.findall(r"\[(.+?)\]", row[0])[0] for row in rows("Who may be hostile")]


@pytest.mark.parametrize(("file", "name"), sorted(set(LINK.findall(PAGE))))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert file in FILES, file
    assert re.search(rf"^def {name}\(", FILES[file].read_text(), re.MULTILINE), f"{file}::{name}"


def test_everyone_who_may_be_hostile_has_promises_and_limits() -> None:
    assert len(HOSTILE) == 6
    for who in HOSTILE:
        part = sections()[who[0].upper() + who[1:]]
        assert "Not promised" in part, who
        for row in rows(who[0].upper() + who[1:]):
            assert len(row) == 3, row
            assert LINK.findall(row[2]), row


def test_every_attack_has_its_before_and_now_and_a_test() -> None:
    table = rows("Attacks tried")
    for attack, before, now, test in table:
        assert all((attack, before, now)), attack
        assert LINK.findall(test), attack
    numbers = [int(row[0].partition(".")[0]) for row in table]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, 21))
