"""What a report compares a run with: the same answer to everything, classes, those passed over."""

from pathlib import Path
from typing import Any

from forager.core.log.events import InputsScaled
from forager.core.tasks import TaskSpec, load_task
from forager.server_app.callbacks.standard import classes_spread
from forager.server_app.constant_baseline import baseline
from forager.server_app.run_folder import RunFolder
from forager.tools.demos import DEMOS
from forager.tools.engine import run_local
from forager.tools.engine.local_grid import LocalGrid
from forager.tools.report.choice_charts import (
    candidates_chart,
    last_candidates,
    last_choice_table,
)
from forager.tools.report.class_charts import classes_chart, classes_sentence
from forager.tools.report.history import History
from forager.tools.report.metric_charts import metric_chart, pictures
from forager.tools.report.page import PAGES, render
from forager.tools.report.story import scaling_sentence

CHOICE = {
    "event": "selected",
    "round": 3,
    "chosen": ["a", "d"],
    "ages": [5, 4],
    "scores": [-0.5, 0.75],
    "others": ["b", "c", "<i>e</i>"],
    "other-ages": [0, 1, 2],
    "other-scores": [-0.25, 0.5, None],
}


def cosage(*events: dict[str, Any]) -> History:
    first = {"event": "run-started", "config": {"client-selector": "cosage"}}
    return History.from_events([first, *events])


def test_who_was_passed_over_stands_beside_the_chosen() -> None:
    history = cosage(CHOICE)
    current, found = last_candidates(history)
    assert current == 3
    assert [(c.client, c.bin, c.chosen) for c in found] == [
        ("a", 1, True),
        ("b", 1, False),
        ("c", 2, False),
        ("d", 2, True),
    ]
    table = last_choice_table(history)
    assert "-0.250" in table
    assert "was chosen, or was not" in table
    plot = candidates_chart(history)
    assert plot is not None
    assert "passed over" in plot.svg


def test_a_log_that_names_only_the_chosen_has_no_such_picture() -> None:
    only = {key: CHOICE[key] for key in CHOICE if not key.startswith("other")}
    history = cosage(only)
    assert candidates_chart(history) is None
    assert "0.750" in last_choice_table(history)


def test_the_same_answer_to_everything_is_a_line() -> None:
    task = load_task(TaskSpec(task="digits"))
    event = baseline(task)
    assert event is not None
    assert 0.08 < (event.metrics["accuracy"] or 0) < 0.13
    evaluated = [
        {"event": "evaluated", "round": r, "metrics": {"accuracy": 0.1 * r}} for r in (1, 2)
    ]
    history = History.from_events([event.to_dict(), *evaluated])
    plot = metric_chart(history.metric, history)
    assert plot is not None
    assert plot.hover["lines"][event.what][0] == [1, 2]
    assert "dashed line" in pictures(history)[0].words(history)
    without = History.from_events(evaluated)
    assert "dashed line" not in pictures(without)[0].words(without)


def test_regression_is_compared_with_the_mean() -> None:
    event = baseline(load_task(TaskSpec(task="diabetes")))
    assert event is not None
    assert event.what == "always the mean"
    assert abs(event.metrics["r2"] or 0) < 1e-3
    assert baseline(load_task(TaskSpec(task="poems"))) is None


def test_classes_are_known_in_simulation_only() -> None:
    task = load_task(TaskSpec(task="digits", partition="pathological", classes_per_client=2))
    grid = LocalGrid(5, {})
    event = classes_spread(grid, task)
    assert event is not None
    assert [sum(count > 0 for count in row) for row in event.counts] == [2] * 5
    held = [len(task.client_data(number, 5).train) for number in range(5)]
    assert [sum(row) for row in event.counts] == held
    history = History.from_events([event])
    plot = classes_chart(history)
    assert plot is not None
    assert plot.hover["values"] == event.counts
    assert "Each client holds 2 of the 10 classes" in classes_sentence(history)
    grid.num_partitions = 0  # as on devices
    assert classes_spread(grid, task) is None
    device = History.from_events([{"event": "selected", "round": 1, "chosen": ["a"]}])
    assert "do not report what they hold" in classes_sentence(device)
    assert classes_chart(device) is None


def test_the_scale_of_inputs_is_said_and_not_spelled_out() -> None:
    history = History.from_events([InputsScaled(round=0, clients=4, features=3)])
    assert "4 clients reported (3 features)" in scaling_sentence(history)
    text = render("a", {"data.scale": "standard:" + "A" * 9000}, history)
    assert "A" * 300 not in text


def test_a_report_leads_to_the_page_of_its_method(tmp_path: Path) -> None:
    folder, page = tmp_path / "runs" / "mine", tmp_path / "docs" / "methods" / "cosage.md"
    page.parent.mkdir(parents=True)
    page.write_text("# CosAge")
    history = cosage(CHOICE)
    assert '<a href="../../docs/methods/cosage.md">CosAge</a>' in render("a", {}, history, folder)
    assert '">Where it helps: forager demo cosage.' in render("a", {}, history)
    assert "How it works" not in render("a", {}, History.from_events([]), folder)
    for name in PAGES:
        assert name in DEMOS


def test_a_run_notes_its_classes_and_its_baseline(tmp_path: Path) -> None:
    done = run_local({"num-server-rounds": 2, "output-dir": str(tmp_path), "report": False})
    kinds = [event["event"] for event in RunFolder(done.folder).read_events()]
    assert kinds.count("baseline") == kinds.count("classes-spread") == 1
