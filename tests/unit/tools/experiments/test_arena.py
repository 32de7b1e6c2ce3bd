"""A rule of one's own gets its row beside all others."""

import json
import math

import pytest
from forager.core.methods.catalogue import methods
from forager.tools.cli.app import main
from forager.tools.experiments import arena
from forager.tools.experiments.compare.schema import STANDINGS
from forager.tools.experiments.records import SweepError

RULE = """
from forager.selectors.client_selectors.base import ClientSelector, lowest


class Oldest(ClientSelector):
    def select(self, candidates, count, rng):
        return lowest({sign}candidates.observed("age"), count, rng)
"""


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(arena, "DATA", {"digits, uneven": arena.DATA["digits, uneven"]})
    monkeypatch.setattr(arena, "COMMON", {**arena.COMMON, "limit.amount": 6})


def test_a_rule_that_is_taking_turns_does_as_well_as_taking_turns(
    small, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RULE.format(sign="-"))
    assert main(["arena", "mine.py", "--rules", "aoi", "--seeds", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["at-equal"] for row in rows} == {"rounds", "bytes", "seconds"}
    by_rule = {
        name: [{k: v for k, v in row.items() if k != "rule"} for row in rows if row["rule"] == name]
        for name in ("aoi", "mine")
    }
    assert by_rule["mine"] == by_rule["aoi"]
    assert all(row["count"] == 2 for row in rows)
    assert any(row["mean"] for row in rows)
    shown = arena.table(rows, "bytes").rows
    assert [line[0] for line in shown[1:]] == ["aoi", "mine"]
    assert shown[1][1:] == shown[2][1:]


def test_the_schema_is_that_of_what_is_printed_and_unknown_numbers_are_null(capsys):
    assert main(["arena", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    row = {"rule": "aoi", "data": "d", "at-equal": "bytes", "count": 0}
    row |= dict.fromkeys(("mean", "low", "high", "p_value"), math.nan)
    (told,) = json.loads(STANDINGS.dump_json(STANDINGS.validate_python([row]), by_alias=True))
    assert told.keys() == schema["$defs"]["Standing"]["properties"].keys()
    assert told["mean"] is told["p-value"] is None
    STANDINGS.validate_python([told])


def test_another_text_under_the_same_name_is_another_rule(tmp_path):
    path, digests = tmp_path / "mine.py", set()
    for sign in ("-", ""):
        path.write_text(RULE.format(sign=sign))
        digests.add(arena.cells([], path)[0].digest)
    assert len(digests) == 2


def test_every_rule_of_some_clients_is_there():
    assert arena.rules()[0] == arena.BASELINE
    assert {*arena.rules(), "all"} >= {
        name for name in methods("client-selector") if name != "mine"
    }
    assert len(arena.cells(["random", "aoi"])) == 2 * len(arena.DATA)


@pytest.mark.parametrize(
    ("text", "says"), [(None, "no such Python file"), ("x = 1", "defines 0 subclasses")]
)
def test_a_file_without_a_rule_is_refused(tmp_path, text, says):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SweepError, match=says):
        arena.own_rule(path)


def test_an_unknown_rule_is_named(capsys):
    assert main(["arena", "--rules", "x"]) == 2
    assert "--rules = 'x' is not known; there are" in capsys.readouterr().err
