"""Records of speed: compared with the last one, and shown on the page."""

from pathlib import Path

from forager.benchmarks.speed_records import (
    BEGIN,
    END,
    METHOD_RECORDS,
    METHOD_TARGETS,
    PAGE,
    TARGETS,
    append_record,
    judged,
    last_ratios,
    new_record,
    page_tables,
    read_records,
    verdict,
    write_page,
)

STACKED, ALONE = "digits, stacked / bare loop", "digits, one by one / bare loop"


def test_a_record_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "speed.jsonl"
    assert read_records(path) == []
    first, second = new_record({STACKED: 0.05123}, load=0.1), new_record({STACKED: 0.06}, load=0.2)
    append_record(first, path)
    append_record(second, path)
    assert read_records(path) == [first, second]
    assert first.ratios == {STACKED: 0.0512}
    assert {"torch", "numpy", "flwr", "python"} == set(first.versions)


def test_a_busy_machine_is_nothing_to_compare_with() -> None:
    quiet, busy = new_record({STACKED: 0.05}, load=0.2), new_record({STACKED: 0.2}, load=9.0)
    assert last_ratios([quiet, busy]) == quiet.ratios
    assert last_ratios([busy]) == {}


def test_creep_is_told_and_what_is_within_noise_is_not() -> None:
    last = {STACKED: 0.05, ALONE: 0.9}
    fine = verdict({STACKED: 0.0549, ALONE: 0.91}, last)
    assert fine == [f"missed 1 of 2 targets: {STACKED}"]
    slow = verdict({STACKED: 0.0551, ALONE: 0.91}, last)
    assert slow[1].startswith("WARNING: slower")
    assert STACKED in slow[1]
    assert ALONE not in slow[1]
    assert verdict({ALONE: 0.5}, {}) == ["missed 0 of 1 targets: none"]
    first, second = judged({STACKED: 0.0551, ALONE: 0.91}, last)
    assert "MISSED" in first
    assert "+10 % SLOWER" in first
    assert "MISSED" not in second
    assert "+1 %" in second


def test_the_page_shows_the_newest_records_first(tmp_path: Path) -> None:
    records = [new_record({STACKED: value}, load=0.0) for value in (0.9, 0.5, 0.03)]
    table = page_tables(records)
    row = next(line for line in table.splitlines() if line.startswith(f"| {STACKED}"))
    assert row == f"| {STACKED} | 0.04 | **0.03** | 0.5 | 0.9 |"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\noutdated\n{END}\nafter\n")
    write_page(records, page)
    write_page(records, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "outdated" not in text
    assert text.count(STACKED) == 1


def test_a_preset_without_a_target_is_shown_and_not_judged() -> None:
    ratios = {"moon, 30 clients": 2.5, "fedprox, 30 clients": 1.1}
    assert verdict(ratios, {}, METHOD_TARGETS) == ["missed 0 of 1 targets: none"]
    lines = page_tables([new_record(ratios, load=0.0)], METHOD_TARGETS).splitlines()
    assert "| moon, 30 clients | 3 | **2.5** |" in lines
    assert "| fedprox, 30 clients |  | 1.1 |" in lines


def test_the_committed_page_is_that_of_the_committed_records(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    write_page(read_records(), page)
    assert page.read_text() == PAGE.read_text()
    assert all(set(record.ratios) <= set(TARGETS) for record in read_records())
    measured = {name for record in read_records(METHOD_RECORDS) for name in record.ratios}
    assert set(METHOD_TARGETS) <= measured
