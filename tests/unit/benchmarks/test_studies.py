"""What is published comes from the records, and the records can be made again."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from forager.benchmarks.studies import catalogue, pages
from forager.benchmarks.studies.claims import (
    NOTHING,
    Claim,
    Trial,
    claims_table,
    holm,
    logarithm,
    outcomes,
    rule,
    tally,
    verdict,
)
from forager.benchmarks.studies.gcfl import images as gcfl_images
from forager.benchmarks.studies.pages.gcfl import page as gcfl_page
from forager.benchmarks.studies.pages.page import names_table
from forager.benchmarks.studies.runs import run_study
from forager.benchmarks.studies.study import RECORDS, Study
from forager.benchmarks.studies.tiny import studies as tiny
from forager.benchmarks.sweeps.measures import final
from forager.core.config import read_config
from forager.tools.experiments.records import Cell, SweepError, SweepRecord, read_records

STUDIES = {study.name: study for study in catalogue.studies()}
FILES = sorted(path for path in RECORDS.glob("*.jsonl") if path.stem in STUDIES)


# Python 3.12 sums floats more exactly than 3.11: positions in a picture may differ in their sixth
# digit, and so do the names of clip paths, which Matplotlib makes of them.
_CLIP_PATH, _POSITION = re.compile(r"\bp[0-9a-f]{10}\b"), re.compile(r"-?\d+\.\d{3,}")


def _text_and_positions(path: Path) -> tuple[str, list[float]]:
    text = _CLIP_PATH.sub("p", path.read_text())
    if path.suffix != ".svg":
        return text, []
    return _POSITION.sub("#", text), [float(number) for number in _POSITION.findall(text)]


def test_pages_and_pictures_are_what_the_records_say(tmp_path):
    for made in pages.write_pages(tmp_path):
        now, places = _text_and_positions(made)
        text, published = _text_and_positions(pages.FOLDER / made.name)
        assert now == text, f"{made.name}: run make results"
        assert places == pytest.approx(published, abs=1e-5), f"{made.name}: run make results"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_record_is_a_run_of_its_study(path):
    cells = {(cell.name, cell.digest) for cell in STUDIES[path.stem].cells}
    for record in read_records(path):
        assert (record.cell, record.digest) in cells, record.cell
        assert record.status == "completed"
        assert record.commit
        assert record.versions["torch"]
        assert record.rows
        assert len(record.rows) <= 27
        assert "/" not in str(record.config.get("data.path", ""))


def test_records_stay_small():
    assert sum(path.stat().st_size for path in RECORDS.iterdir()) < 14_000_000


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_cell_is_a_config_that_is_allowed(study):
    own = ("study.", "corrupted", "records-lost", "unstable", "attack", "limit.")
    for cell in study.cells:
        config = {k: v for k, v in cell.config.items() if not k.startswith(own)}
        if "study.data" in cell.config or "study.spread" in cell.config:
            config |= {"task": "npz", "data.path": "x.npz"}
        read_config(config)


@pytest.mark.parametrize("cell", tiny()[0].cells, ids=lambda cell: cell.name)
def test_a_new_run_of_each_method_gives_its_record(cell, tmp_path):
    (record,) = [r for r in read_records(tiny()[0].path) if r.cell == cell.name]
    found = run_study({**cell.config, "seed": record.seed, "output-dir": str(tmp_path)})
    assert len(found.rounds) == len(record.rows)
    for new, old in zip(found.rounds, record.rows, strict=True):
        assert new.keys() == old.keys()
        for name in ("accuracy", "clients-accuracy-mean", "bytes-up", "clean-share"):
            # Other processors round otherwise; other code would be further off.
            if name in old:
                assert new[name] == pytest.approx(old[name], rel=0.05, abs=0.03), name


def written(path: Path, values: dict[str, list[float]]) -> Study:
    """Return a study whose records have these accuracies."""
    cells = tuple(Cell(name, {"task": "digits", "strategy": name}) for name in values)
    study = Study("made", "made", "", cells, range(9))
    lines = [
        SweepRecord(
            c.name, seed, c.digest, "completed", "", "", 1.0, c.config, [{"round": 1, "a": a}]
        )
        for c in cells
        for seed, a in enumerate(values[c.name])
    ]
    path.write_bytes(b"".join(line.line() for line in lines))
    return study


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr("forager.benchmarks.studies.study.RECORDS", tmp_path)
    low = [0.5, 0.51, 0.49, 0.5, 0.52]
    high = [value + 0.1 + n / 1000 for n, value in enumerate(low)]
    swinging = [0.4, 0.7, 0.35, 0.62, 0.48]
    return written(
        tmp_path / "made.jsonl", {"low": low, "high": high, "any": swinging, "few": high[:2]}
    )


def claim(study, *pairs, expect="above"):
    tests = tuple(Trial(f"{a} - {b}", study, a, b, final("a")) for a, b in pairs)
    return Claim("it helps", tests, expect)


@pytest.mark.parametrize(
    ("pairs", "expect", "word"),
    [
        ([("high", "low")], "above", "held"),
        ([("low", "high")], "above", "refuted"),
        ([("low", "low")], "above", "refuted"),
        ([("any", "low")], "above", "undecided"),
        ([("high", "low"), ("any", "low")], "above", "held"),
        ([("any", "low"), ("high", "low")], "above", "held in part"),
        ([("high", "low"), ("low", "high")], "above", "held in part"),
        ([("any", "low")], "not below", "undecided"),
        ([("low", "low")], "not below", "held"),
        ([("low", "high")], "not below", "refuted"),
        ([("few", "low")], "not below", "held (preliminary)"),
        ([("few", "low"), ("low", "high")], "not below", "refuted"),
    ],
)
def test_verdicts(study, pairs, expect, word):
    one = claim(study, *pairs, expect=expect)
    assert verdict(one, outcomes([one])) == word


def test_few_seeds_are_named(study):
    assert claim(study, ("few", "low")).tests[0].text().endswith("] (2 seeds)")
    assert "seeds" not in claim(study, ("high", "low")).tests[0].text()
    assert "fewer than five seeds" in rule([claim(study, ("high", "low"), ("few", "low"))])
    assert "fewer than five seeds" not in rule([claim(study, ("high", "low"))])


@pytest.mark.parametrize("seeds", [0, 1])
def test_a_page_can_be_made_while_its_runs_are_going_on(tmp_path, monkeypatch, seeds):
    monkeypatch.setattr("forager.benchmarks.studies.study.RECORDS", tmp_path)
    study, timed = gcfl_images(), {"choose-seconds": 1.0, "train-seconds": 2.0}

    def rows(n, seed):
        score = 0.3 + n / 10 + seed * n / 100
        return [{"round": 250, "accuracy": score, "clean-share": n / 10, **timed}]

    lines = [
        SweepRecord(
            *(c.name, seed, c.digest, "completed", "", "", 1.0, c.config, rows(n, seed)),
        ).line()
        for n, c in enumerate(study.cells)
        for seed in range(seeds)
    ]
    if seeds:
        study.path.write_bytes(b"".join(lines))
    page = gcfl_page()
    text = page.markdown()
    (row,) = [line for line in text.splitlines() if "16 steps per round, gcfl - fedavg" in line]
    assert "| +13.3 |" in row
    assert ("| not measured |" in row, "(1 seed)" in row) == (seeds == 0, seeds == 1)
    drawn = {path.name for path in page.draw(tmp_path / "pictures")}
    assert ("gcfl-cifar.svg" in drawn) == ("gcfl-cifar.svg" in text) == (seeds > 0)


def test_what_is_claimed_of_all_places_must_hold_in_all(study):
    both = claim(study, ("high", "low"), ("any", "low"))
    assert verdict(replace(both, everywhere=True), outcomes([both])) == "held in part"


def test_other_claims_of_a_page_cost_a_claim_nothing(study):
    one = claim(study, ("high", "low"))
    many = [claim(study, ("any", "low")) for _ in range(100)]
    assert verdict(one, outcomes([one, *many])) == "held"


def test_places_beside_the_first_are_corrected_within_their_claim(study):
    one = claim(study, ("any", "low"), *[("high", "low")] * 3)
    p_values = [test.found.p_value for test in one.tests]
    found = outcomes([one])
    assert [found[t] for t in one.tests[1:]] == ["above"] * 3
    assert found[one.tests[0]] == "level"
    assert holm(p_values[1:])[0] == pytest.approx(3 * p_values[1])


def test_a_correction_does_not_hide_harm(study):
    harm = claim(study, ("low", "high"), expect="not below")
    corrected = dict.fromkeys(harm.tests, "level")  # as among very many comparisons
    assert verdict(harm, corrected) == "refuted"


def test_what_is_undecided_says_how_many_seeds_would_decide(study):
    trial = Trial("any - low", study, "any", "low", final("a"), smallest=10.0)
    one, needed = Claim("it helps", (trial,)), trial.would_decide()
    assert Trial("any - low", study, "any", "low", final("a")).would_decide() is None
    assert needed > one.tests[0].found.count
    assert f"**undecided**: about {needed} seeds would decide" in claims_table([one])
    assert "would decide" not in claims_table([claim(study, ("high", "low"))])
    assert tally([one, claim(study, ("high", "low"))]) == (
        "Of the paper's 2 claims: 1 held, 1 undecided."
    )


def test_what_was_not_run_is_called_so(study):
    empty = Study("none", "none", "", study.cells, study.seeds)
    one = claim(empty, ("high", "low"))
    assert verdict(one, outcomes([one])) == "not measured"
    assert one.tests[0].text() == "not measured"
    assert empty.missing() == len(empty.cells) * 9


def test_less_can_be_better(study):
    found = Trial("jitter", study, "low", "high", final("a"), scale=-100.0).found
    assert found.mean > 0
    assert found.low < found.mean < found.high


def test_a_difference_can_have_a_unit_of_its_own(study):
    one = Trial("time", study, "low", "high", final("a"), scale=-100.0, unit="s sooner")
    assert one.text().endswith("] s sooner")
    logs = logarithm(final("a"))
    doubled = Trial("time", study, "low", "low", logs, scale=-1.0, unit="times as fast", ratio=True)
    assert doubled.text() == "1 [1, 1] times as fast"
    existing = Trial("any", study, "low", "low", final("a"), baseline_measure=NOTHING)
    assert existing.found.mean == pytest.approx(50.4)


def test_many_questions_need_stronger_answers():
    assert holm([0.02]) == [0.02]
    assert min(holm([0.02] * 5)) == pytest.approx(0.1)
    assert all(math.isnan(p) for p in holm([math.nan] * 2))


def test_an_unknown_paper_is_named():
    with pytest.raises(SweepError, match=r"PAPER = 'x' is not known; there are \['cosage'"):
        catalogue.studies("x")


def test_a_record_names_the_data_and_not_its_path():
    for path in FILES:
        for line in path.read_text().splitlines():
            assert not str(json.loads(line)["config"].get("data.path", ""))


def test_cells_of_primary_comparisons_have_twenty_seeds():
    dear, timed = 60.0, "ode-costs"  # seconds of a run; times are measured on a quiet machine
    for page in pages.pages():
        for one in page.claims:
            study = one.primary.study
            for cell in study.cells:
                runs = study.results.runs[cell.name].values()
                seconds = max((run.seconds for run in runs), default=0.0)
                if cell.name in (one.primary.cell, one.primary.baseline) and seconds < dear:
                    assert len(study.seeds_of(cell)) >= 20 or study.name == timed, one.says


def test_a_page_says_what_ran_under_each_name(study):
    lines = names_table([study]).splitlines()
    assert len(lines) == 2 + len(study.cells)
    cells = (
        Cell("here: a", {"task": "digits", "rounds": 5}),
        Cell("here: b", {"task": "digits", "rounds": 5, "strategy": "ode"}),
        Cell("there: b", {"task": "blobs", "rounds": 5, "strategy": "ode"}),
        Cell("there: a", {"task": "blobs", "rounds": 5}),
    )
    lines = names_table([replace(study, cells=cells)]).splitlines()
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["", "`strategy='ode'`"]


def test_a_page_names_what_is_undecided(study):
    page = gcfl_page()
    both = (claim(study, ("any", "low")), claim(study, ("high", "low")))
    assert replace(page, claims=both).undecided() == "it helps"
    assert replace(page, claims=both[1:]).undecided() == ""
