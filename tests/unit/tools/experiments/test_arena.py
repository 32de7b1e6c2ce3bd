"""A rule of one's own gets its row beside all others."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from forager.core.config import read_config
from forager.core.methods.catalogue import methods
from forager.tools.cli.app import main
from forager.tools.experiments import arena
from forager.tools.experiments.compare.schema import STANDINGS
from forager.tools.experiments.records import SweepError

WHO = arena.KINDS["who trains"]
RULE = """
from forager.selectors.client_selectors.base import ClientSelector, lowest


class Oldest(ClientSelector):
    def select(self, candidates, count, rng):
        return lowest({sign}candidates.observed("age"), count, rng)
"""


PAGE = Path(__file__).parents[4] / "docs" / "results" / "arena.md"
OLDEST, EVERY_OTHER, IN_TURN = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
NEWEST = """
from forager.selectors.stream_selectors.plain import Fifo


class Newest(Fifo):
    pass
"""
# A rule of each kind, those of the page among them, and one that there is
OWN = {
    "who trains": ("aoi", OLDEST),
    "on which samples": ("full", EVERY_OTHER),
    "what a stream keeps": ("fifo", NEWEST),
    "with whom": ("flexcfl", IN_TURN),
}


@pytest.fixture
def small(monkeypatch):
    for name, kind in arena.KINDS.items():
        data = dict(list(kind.data.items())[:1])
        monkeypatch.setitem(arena.KINDS, name, replace(kind, data=data))
    monkeypatch.setattr(arena, "COMMON", {**arena.COMMON, "limit.amount": 6})


@pytest.mark.parametrize("kind", arena.KINDS)
def test_a_rule_of_each_kind_gets_its_row(kind, small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    other, text = OWN[kind]
    (tmp_path / "mine.py").write_text(text)
    assert main(["arena", "mine.py", "--rules", other, "--seeds", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["rule"] for row in rows} == {other, "mine"}
    assert {row["data"] for row in rows} == set(arena.KINDS[kind].data)
    assert all(row["count"] == 2 for row in rows if row["at-equal"] == "rounds")
    gains = {row["rule"]: row["mean"] for row in rows if row["at-equal"] == "rounds"}
    if kind in ("who trains", "what a stream keeps"):  # mine does what the other one does
        assert gains["mine"] == gains[other]
    assert gains["mine"] != 0


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
    shown = arena.table(rows, "bytes", ["digits, uneven"]).rows
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
        digests.add(arena.cells(WHO, [], path)[0].digest)
    assert len(digests) == 2


def test_every_rule_of_some_clients_is_there():
    assert WHO.rules()[0] == "random"
    assert {*WHO.rules(), "all"} >= {name for name in methods("client-selector") if name != "mine"}
    assert len(arena.cells(WHO, ["random", "aoi"])) == 2 * len(WHO.data)


def test_every_cell_is_a_config_that_is_allowed():
    for kind in arena.KINDS.values():
        for cell in arena.cells(kind, [rule for rule in kind.rules() if rule != "mine"]):
            read_config({k: v for k, v in cell.config.items() if not k.startswith("limit.")})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such Python file"),
        ("x = 1", "defines 0 subclasses of ClientSelector, ClientHook"),
    ],
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
