"""The study of diagnoses: its page says what its records say."""

from forager.benchmarks.alike import check
from forager.benchmarks.diagnosed import PLANTED, tables
from forager.benchmarks.planted_cases import CASES
from forager.benchmarks.studies.diagnose import studies
from forager.tools.diagnose.advice import alike_records
from forager.tools.experiments.provenance import ROOT

PAGE = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")


def test_the_page_shows_the_records_and_all_runs_are_there() -> None:
    (study,) = studies()
    assert study.missing() == 0
    assert tables(study.results) in PAGE


def test_every_planted_case_has_a_name_for_what_must_be_found() -> None:
    assert CASES.keys() == PLANTED.keys()


def test_the_page_says_how_often_what_is_expected_holds() -> None:
    told = check(alike_records())
    held = sum(low <= gain <= high for _, gain, low, high in told)
    assert f"in {held} of {len(told)} cases" in PAGE
