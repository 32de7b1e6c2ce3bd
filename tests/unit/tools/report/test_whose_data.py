"""Whose data a number was measured on, whose reply was set aside, and what clients are called."""

from typing import Any

import pytest
from forager.tools.live.fragments import faults
from forager.tools.live.runs import FollowedRun
from forager.tools.report import page
from forager.tools.report.history import History
from forager.tools.report.participation_charts import choices_chart
from forager.tools.report.story import preset_sentence, summary
from forager.tools.report.tail import Tail
from forager.tools.report.watch import view

METRICS = [{"name": "mae", "higher-is-better": False}, {"name": "r2"}]


def clinics(cohorts: str) -> list[dict[str, Any]]:
    config = {"cohorts": cohorts, "strategy": "auxo", "num-server-rounds": 2}
    own = {"mae": {"mean": 1.264, "worst-10": 2.5}, "r2": {"mean": 0.41}}
    return [
        {"event": "run-started", "config": config, "metrics": METRICS},
        {"event": "cohorts", "round": 1, "members": {"0": 4}},  # it was never split
        {"event": "evaluated", "round": 1, "metrics": {"mae": 1.9, "r2": -0.58}},
        {"event": "evaluated", "round": 1, "where": "clients", "spread": own},
        {"event": "round-finished", "round": 1, "seconds": 2.0},
    ]


def test_every_figure_says_whose_data_it_is_about() -> None:
    told = dict(summary(History.from_events(clinics("auxo"))))
    assert told["final MAE"] == "1.264 on clients' own data (round 1)"
    assert told["also on clients' own data"] == "R2 0.41"
    assert told["worst tenth of clients"] == "2.5 on their own data"
    assert told["on the server's test data"] == "MAE 1.9, R2 -0.58"
    one = dict(summary(History.from_events(clinics("none"))))
    assert one["final MAE"] == "1.9 on the server's test data (round 1)"
    assert one["also on the server's test data"] == "R2 -0.58"
    assert one["on clients' own data"] == "MAE 1.264, R2 0.41"
    seen = dict(view.lines(History.from_events(clinics("auxo")), 0.0))
    assert seen["MAE"].startswith("1.264 on clients' own data")
    assert seen["on the server's test data"] == "MAE 1.9, R2 -0.58"


def test_a_split_does_not_move_the_headline() -> None:
    whole = History.from_events(clinics("auxo"))
    split = History.from_events(
        [*clinics("auxo"), {"event": "cohorts", "round": 2, "members": {"0.0": 2, "0.1": 2}}]
    )
    assert whole.score_column == split.score_column == "clients-mae-mean"


def exchange(kind: str, **more: Any) -> dict[str, Any]:
    sizes = {"bytes-down": 100, "bytes-up": 10}
    return {"event": "exchange", "round": 1, "kind": kind, **sizes, **more}


def test_bytes_of_tests_are_not_those_of_training() -> None:
    kinds = ("query.identify", "query.summary", "train", "evaluate")
    history = History.from_events(map(exchange, kinds))
    row = history.rows[1]
    assert (row["bytes-down"], row["bytes-up"], row["bytes-select"]) == (100, 10, 110)
    assert row["bytes-test"] == 220
    assert dict(summary(history))["other bytes"] == (
        "220 B of tests on clients and of asking their names, not counted above"
    )


def test_clients_that_start_are_not_choosing() -> None:
    chosen = {"event": "selected", "round": 1, "chosen": ["a"], "seconds": 12.7}
    log = [exchange("query.identify", seconds=12.6), chosen, {**chosen, "seconds": 0.2}]
    row = History.from_events(log).rows[1]
    assert row["select-seconds"] == pytest.approx(0.3)
    assert row["connect-seconds"] == pytest.approx(12.6)


def test_an_evaluation_that_is_set_aside_is_no_failed_training() -> None:
    aside = {"event": "quarantined", "client": "7", "reason": "r2 is not finite"}
    log = [
        {"event": "selected", "round": 1, "chosen": ["7", "8"]},
        exchange("train", received=2),
        {"event": "aggregated", "round": 1},
        exchange("evaluate"),
        {**aside, "round": 1},
        {"event": "selected", "round": 2, "chosen": ["7", "8"]},
        {**aside, "round": 2, "reason": "not finite"},
    ]
    history = History.from_events(log)
    assert [(p.round, p.kind) for p in history.problems] == [(1, "evaluate"), (2, "train")]
    assert history.rows[1]["quarantined"] == 0
    assert history.rows[2]["quarantined"] == 1
    text = page.render("run", {}, history)
    assert "evaluation set aside" in text
    assert "training set aside" in text
    assert "train quarantined" not in text


def test_names_of_owners_are_shown_wherever_clients_are(tmp_path: Any) -> None:
    log = [
        {"event": "identified", "round": 1, "client": "21", "name": "clinic-21"},
        {"event": "selected", "round": 1, "chosen": ["21", "3"]},
        exchange("train", failed={"21": "out of memory"}),
        {
            "event": "cohorts",
            "round": 1,
            "members": {"0": 1, "1": 1},
            "moved": {"21": "0", "3": "1"},
        },
    ]
    history = History.from_events(log[:2])
    assert "clinic-21" in dict(view.lines(history, 0.0))["training now"]
    history.take(log[2:])
    assert history.faults("failed") == {"clinic-21": 1}
    assert page.render("run", {}, history).count("clinic-21") >= 4
    run = FollowedRun("one", Tail(tmp_path / "none"), history, log)
    assert "<b>clinic-21</b> failed: out of memory" in faults(run)


def test_a_node_that_joined_later_did_not_wait_before() -> None:
    chosen = {"event": "selected", "available": 2}
    asked = exchange("query.identify") | {"round": 4}
    log = [
        exchange("query.identify", **{"reply-seconds": {"median": 1, "slowest": {"a": 1}}}),
        *({**chosen, "round": r, "chosen": ["a"]} for r in (1, 2, 3)),
        {**asked, "reply-seconds": {"median": 1, "slowest": {"b": 1}}},
        *({**chosen, "round": r, "chosen": ["a"]} for r in (4, 5)),
        {**chosen, "round": 6, "chosen": ["b"]},
    ]
    history = History.from_events(log)
    assert history.ages()[1].tolist() == [0, 1, 2, 0, 1, 2]
    drawn = choices_chart(history)
    assert drawn is not None
    assert "away" in drawn.hover
    assert "The longest that any of them waited was 2 rounds" in page.render("run", {}, history)


def test_a_report_says_what_its_preset_sets() -> None:
    config = {"strategy": "cosage", "client-selector": "cosage", "uplink": "dense"}
    history = History.from_events([{"event": "run-started", "config": config}])
    assert "uplink='top-k-plain' (here 'dense')" in preset_sentence(history)
    assert "strategy=&#x27;cosage&#x27; sets" in page.render("run", config, history)
