"""Tables that benchmarks print are kept, and pages show what was kept."""

import pytest
from forager.benchmarks import printed
from forager.benchmarks.studies.pages import FOLDER, blocks


def table(name: str, value: str) -> printed.Printed:
    return printed.Printed(name, "python -m x", "2026-01-01", "abc", {}, 2, 0.5, [["a"], [value]])


def test_a_new_run_replaces_the_table_of_its_name(tmp_path):
    path = tmp_path / "printed.jsonl"
    for each in (table("one", "1"), table("two", "2"), table("one", "3")):
        printed.keep(each, path)
    assert {n: t.rows[1] for n, t in printed.read_printed(path).items()} == {
        "one": ["3"],
        "two": ["2"],
    }


def test_a_table_says_where_it_comes_from():
    text = table("one", "1").markdown()
    assert text.startswith("`python -m x`, 2026-01-01, commit `abc`, load 0.5 on 2 cores")
    assert text.endswith("| a   |\n| --- |\n| 1   |")


def test_a_mark_without_a_table_is_an_error():
    with pytest.raises(KeyError, match="other"):
        blocks.filled("<!-- from records: other --><!-- end -->", {"one": "1"})


def test_every_table_that_was_kept_is_on_a_page_and_can_be_made_again():
    pages = "".join((FOLDER / name).read_text() for name in blocks.PAGES)
    for name, kept in printed.read_printed().items():
        assert f"<!-- from records: {name} -->" in pages
        assert kept.command == printed.COMMANDS[name]
