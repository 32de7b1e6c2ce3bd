"""Measures, statistics, tables and plots, against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from forager.benchmarks.sweeps.measures import (
    area,
    at_round,
    best,
    final,
    rounds_to,
    total,
    total_bytes,
)
from forager.benchmarks.sweeps.plots import plot_curves
from forager.benchmarks.sweeps.tables import Column, difference_table, summary_table
from forager.tools.experiments.measures import Measure
from forager.tools.experiments.records import Row, SweepError, SweepRecord
from forager.tools.experiments.results import Results
from forager.tools.experiments.statistics import difference, estimate
from forager.tools.experiments.tables import Table

ROWS: list[Row] = [
    {"round": 1, "accuracy": 0.2, "loss": 2.0, "bytes-down": 5, "bytes-up": 1, "bytes-select": 0},
    {"round": 2, "accuracy": None, "loss": 1.0, "bytes-down": 5, "bytes-up": 2, "bytes-select": 3},
    {"round": 3, "accuracy": 0.8, "loss": 1.5, "bytes-down": 5, "bytes-up": 3, "bytes-select": 0},
    {"round": 4, "accuracy": 0.6, "loss": math.nan, "bytes-down": 5, "bytes-up": 4},
]


def results(cells: dict[str, dict[int, list[float]]]) -> Results:
    """Runs with the given accuracies at rounds 1, 2, ..."""
    return Results(
        {name: {s: run(name, s, v) for s, v in c.items()} for name, c in cells.items()}, []
    )


def run(cell: str, seed: int, values: list[float]) -> SweepRecord:
    rows: list[Row] = [{"round": i, "accuracy": value} for i, value in enumerate(values, start=1)]
    return SweepRecord(cell, seed, "0", "completed", "completed", "", 1.0, {}, rows)


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        (final("accuracy"), 0.6),
        (best("accuracy"), 0.8),
        (best("loss", lowest=True), 1.0),
        (at_round("accuracy", 3), 0.8),
        (at_round("accuracy", 2), None),
        (at_round("accuracy", 9), None),
        (area("accuracy"), 2 * 0.5 + 1 * 0.7),
        (rounds_to("accuracy", 0.5), 3),
        (rounds_to("accuracy", 0.8), 3),
        (rounds_to("accuracy", 0.9), None),
        (rounds_to("loss", 1.6, lowest=True), 2),
        (total("bytes-up"), 10),
        (total_bytes(), 20 + 10 + 3),
        (final("nothing"), None),
    ],
)
def test_measures(measure: Measure, value: float | None) -> None:
    assert measure.of(ROWS) == (None if value is None else pytest.approx(value))


def test_a_final_nan_stays_nan() -> None:
    found = final("loss").of(ROWS)
    assert found is not None
    assert math.isnan(found)


def test_estimate_by_hand() -> None:
    # Mean 5, squared deviations 9 + 1 + 1 + 9 = 20, variance 20/3; t(0.975, 3) = 3.182446.
    found = estimate([2.0, 4.0, 6.0, 8.0])
    half = 3.182446 * math.sqrt(20 / 3) / 2
    assert (found.mean, found.count) == (5.0, 4)
    assert found.std == pytest.approx(math.sqrt(20 / 3))
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half), rel=1e-6)


def test_estimate_of_one_and_of_none() -> None:
    one, none = estimate([3.0]), estimate([])
    assert one.mean == 3.0
    assert all(math.isnan(value) for value in (one.std, one.low, one.high, none.mean, none.std))


def test_difference_by_hand() -> None:
    # Differences 1, 2, 3 over the common seeds: mean 2, std 1, t = 2 * sqrt(3) with 2 degrees of
    # freedom, whose two-sided p-value is 1 - t / sqrt(t^2 + 2) = 1 - sqrt(12 / 14).
    found = difference({1: 11.0, 2: 22.0, 3: 33.0, 4: 99.0}, {3: 30.0, 2: 20.0, 1: 10.0, 7: 0.0})
    assert (found.mean, found.count, found.verdict) == (2.0, 3, "no difference")
    assert found.p_value == pytest.approx(1 - math.sqrt(12 / 14))
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(
    ("first", "verdict", "p_value"),
    [
        ([1.0, 2.0, 3.0], "no difference", 1.0),
        ([2.0, 3.0, 4.0], "higher", 0.0),
        ([0.0, 1.0, 2.0], "lower", 0.0),
        ([2.0], "unknown", math.nan),
        ([], "unknown", math.nan),
        ([math.nan, 2.0, 3.0], "unknown", math.nan),
    ],
)
def test_verdicts(first: list[float], verdict: str, p_value: float) -> None:
    found = difference(dict(enumerate(first)), {0: 1.0, 1: 2.0, 2: 3.0})
    assert found.verdict == verdict
    assert found.p_value == pytest.approx(p_value, nan_ok=True)


def test_verdict_agrees_with_the_p_value() -> None:
    baseline = dict.fromkeys(range(5), 0.0)
    for shift in (-3.0, -1.0, 0.0, 1.0, 3.0):
        noisy = {seed: shift + value for seed, value in enumerate([-1.0, 1.0, 0.5, -0.5, 0.2])}
        found = difference(noisy, baseline)
        assert (found.verdict == "no difference") == (found.p_value > 0.05)


TRIAL = results(
    {
        "avg": {0: [0.1, 0.5], 1: [0.2, 0.6], 2: [0.3, 0.7]},
        "prox|x": {0: [0.1, 0.6], 1: [0.2, 0.71], 2: [0.3]},
    }
)
COLUMNS = [
    Column("final %", final("accuracy"), ".1f", 100),
    Column("to 0.5", rounds_to("accuracy", 0.5), ".0f"),
]


def test_summary_table() -> None:
    assert summary_table(TRIAL, COLUMNS).markdown().splitlines() == [
        "| cell    | seeds | final %     | to 0.5         |",
        "| ------- | ----- | ----------- | -------------- |",
        "| avg     | 3     | 60.0 ± 10.0 | 2 ± 0          |",
        "| prox\\|x | 3     | 53.7 ± 21.2 | 2 ± 0 (2 of 3) |",
    ]
    text = summary_table(TRIAL, COLUMNS[:1], cells=["avg"], spread="interval").text()
    assert text.splitlines() == ["cell  seeds  final %", "avg   3      60.0 [35.2, 84.8]"]


def test_difference_table_uses_common_seeds() -> None:
    column = Column("second", at_round("accuracy", 2))
    # Differences 0.10 and 0.11: mean 0.105, half width 12.7062 * 0.005, t = 21 with 1 degree of
    # freedom, whose p-value is 1 - 2 * atan(21) / pi.
    assert difference_table(TRIAL, [column], "avg").rows == [
        ["cell - avg", "seeds", "second"],
        ["prox|x", "3", "+0.105 [+0.041, +0.169], p=0.030, higher"],
    ]


def test_tables_show_failures_single_seeds_and_nothing() -> None:
    failed = SweepRecord("b", 5, "0", "failed", "", "E", 0.0, {}, [])
    trial = results({"a": {0: [0.5]}, "b": {}})
    trial.failures.append(failed)
    columns = [Column("final", final("accuracy"))]
    assert summary_table(trial, columns).rows[1:] == [
        ["a", "1", "0.500"],
        ["b", "0 (1 failed)", "-"],
    ]
    assert difference_table(trial, columns, "a").rows[1] == ["b", "0 (1 failed)", "-"]


def test_text_table_is_aligned() -> None:
    assert Table([["a", "bb"], ["ccc", "d"]]).text() == "a    bb\nccc  d"


def test_curve_has_the_rounds_that_all_runs_reached() -> None:
    rounds, points = TRIAL.curve("avg", "accuracy")
    assert rounds.tolist() == [1, 2]
    assert [point.mean for point in points] == pytest.approx([0.2, 0.6])
    assert [point.std for point in points] == pytest.approx([0.1, 0.1])
    assert TRIAL.curve("prox|x", "accuracy")[0].tolist() == [1]


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SweepError, match=r"cell 'moon' is not in the sweep; there are .'avg'"):
        TRIAL.estimate("moon", final("accuracy"))
    with pytest.raises(SweepError, match=r"metric 'acuracy' is in no run; there are .'accuracy'"):
        TRIAL.estimate("avg", final("acuracy"))


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_plots(tmp_path: Path, suffix: str, start: bytes) -> None:
    first = plot_curves(TRIAL, "accuracy", tmp_path / "new" / f"1{suffix}").read_bytes()
    again = plot_curves(TRIAL, "accuracy", tmp_path / f"2{suffix}").read_bytes()
    other = plot_curves(TRIAL, "accuracy", tmp_path / f"3{suffix}", spread="std").read_bytes()
    part = plot_curves(TRIAL, "accuracy", tmp_path / f"4{suffix}", cells=["avg"]).read_bytes()
    assert first.startswith(start)
    assert first == again
    assert len({first, other, part}) == 3


def test_plot_refuses_other_formats(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"'.gif' is not allowed; use .png or .svg"):
        plot_curves(TRIAL, "accuracy", tmp_path / "x.gif")
