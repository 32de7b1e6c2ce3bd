"""Runs that are judged by something else than accuracy."""

import csv
from pathlib import Path
from typing import Any

import pytest
from forager.core.log.events import Evaluated, RunStarted, read_event
from forager.core.tasks.errors import TaskError
from forager.core.tasks.metrics import ACCURACY, TAKEN, Metric, check_metrics
from forager.server_app.run_folder import RunFolder
from forager.tools.report import page, summary_table, write_report, write_rounds_csv
from forager.tools.report.history import History
from forager.tools.report.rounds import AFTER_METRICS, BEFORE_METRICS
from forager.tools.report.story import figures, last_and_best, worst_tenth
from forager.tools.report.watch import view

METRICS = [{"name": "mae", "higher-is-better": False}, {"name": "macro-f1", "share": True}]


def evaluated(number: int, mae: float) -> list[dict[str, Any]]:
    spread = {"mae": {"mean": mae, "variance": 4.0, "worst-10": 2 * mae, "best-10": mae / 2}}
    at = {"event": "evaluated", "round": number}
    return [
        {**at, "where": "server", "metrics": {"mae": mae, "macro-f1": 0.5}, "loss": mae**2},
        {**at, "where": "clients", "spread": spread, "loss": 7.0, "clients": 9},
        {"event": "round-finished", "round": number, "seconds": 1.0},
    ]


def log() -> list[dict[str, Any]]:
    errors = {0: 90.0, 1: 41.237, 2: 60.0}
    rounds = [event for number, mae in errors.items() for event in evaluated(number, mae)]
    started = {"event": "run-started", "strategy": "fedavg on diabetes", "metrics": METRICS}
    return [started, *rounds, {"event": "run-finished", "reason": "completed", "rounds": 2}]


def folder_of(tmp_path: Path, events: list[dict[str, Any]]) -> RunFolder:
    folder = RunFolder.create(tmp_path, "run")
    for event in events:
        folder.append_event(event)
    return folder


def test_the_lowest_error_is_the_best() -> None:
    history = History.from_events(log())
    assert history.metric == Metric("mae", higher_is_better=False)
    assert last_and_best(history) == ((2, 60.0), (1, 41.237))
    assert (figures(history, own=True)[0], worst_tenth(history)) == ("MAE 60", "120")


def test_rounds_csv_names_its_columns_for_the_metrics(tmp_path: Path) -> None:
    with write_rounds_csv(folder_of(tmp_path, log())).open(newline="") as file:
        first, *_ = csv.DictReader(file)
    assert (first["mae"], first["macro-f1"], first["loss"]) == ("90.0", "0.5", "8100.0")
    assert (first["clients-mae-worst-10"], first["clients-mae-best-10"]) == ("180.0", "45.0")
    assert first["clients-macro-f1-mean"] == ""
    assert not [name for name in first if "accuracy" in name]


def test_the_report_speaks_of_the_metric(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, log())
    text = write_report(folder).read_text()
    assert "MAE after round 2 is 60 on the server&#x27;s test data" in text
    assert "the best was 41.24 in round 1" in text
    assert "Also there: macro F1 50.0 %" in text
    assert "<h3>MAE</h3>" in text
    assert "<h3>Macro F1</h3>" in text
    assert "Lower is better. Look for a curve that still falls" in text
    assert "accuracy" not in text.lower()
    lines = dict(line.split("  ", 1) for line in summary_table(folder).splitlines())
    assert lines["final MAE"].strip() == "60 on the server's test data (round 2)"
    assert lines["best MAE"].strip() == "41.24 on the server's test data (round 1)"


def test_cohorts_are_compared_by_the_metric() -> None:
    cohorts = [
        {"event": "cohorts", "round": 1, "members": {"a": 3, "b": 2}},
        {"event": "cohorts-evaluated", "round": 1, "means": {"a": 12.0, "b": 30.5}},
    ]
    history = History.from_events([*log(), *cohorts])
    drawn = {p.title: p.draw(history) for _, chapter in page.chapters(history) for p in chapter}
    plot = drawn["MAE of each cohort"]
    assert plot is not None
    assert plot.hover["lines"]["cohort b"] == [[1], [30.5]]
    assert "with their models MAE is 12 to 30.5" in page.render("run", {}, history)


def test_watching_shows_the_metric_and_its_best() -> None:
    state = History()
    state.take(log())
    assert view.line(state).startswith("round 2/?  MAE 60 on the server's test data  ")
    told = dict(view.lines(state, 0.0))
    assert told["MAE"].startswith("60 on the server's test data, best 41.24")
    assert told["also on the server's test data"] == "macro F1 50.0 %"
    assert told["worst tenth of clients"] == "120 on their own data"


def test_a_run_may_be_judged_by_its_loss() -> None:
    judged = {"name": "loss", "higher-is-better": False}
    history = History.from_events(
        [
            {"event": "run-started", "metrics": [judged]},
            *(
                {"event": "evaluated", "round": r, "loss": loss}
                for r, loss in enumerate((3.0, 1.0, 2.0))
            ),
        ]
    )
    assert last_and_best(history) == ((2, 2.0), (1, 1.0))
    assert "Loss after round 2 is 2 on" in page.render("run", {}, history)


def test_an_event_is_read_as_far_as_it_makes_sense() -> None:
    event = read_event({"event": "evaluated", "metrics": "?", "loss": 1.0})
    assert isinstance(event, Evaluated)
    assert (event.metrics, event.loss) == ({}, 1.0)
    assert RunStarted().metrics[0].name == "accuracy"


def test_what_a_log_calls_a_metric_cannot_take_another_column() -> None:
    events = [
        {"event": "run-started", "metrics": [{"name": "<script>"}]},
        {"event": "evaluated", "round": 1, "metrics": {"seconds": 9.0, "accuracy": 0.5}},
        {"event": "round-finished", "round": 1, "seconds": 1.0},
    ]
    history = History.from_events(events)
    assert history.metrics == (ACCURACY,)
    assert history.rows[1] == {"accuracy": 0.5, "seconds": 1.0}


def test_names_that_could_not_be_told_apart_are_refused() -> None:
    assert {*BEFORE_METRICS, *AFTER_METRICS} == TAKEN
    for names, words in [
        ([], "there is none"),
        (["bytes-up"], "'bytes-up' is a column of rounds.csv already"),
        (["clients-mae"], "is a column"),
        (["mae", "mae"], "'mae' is named 2 times; keep one"),
        (["Mean Error"], "'Mean Error' is not a name"),
    ]:
        with pytest.raises(TaskError, match=words):
            check_metrics([Metric(name) for name in names])
    check_metrics([Metric("mae"), Metric("loss")])
