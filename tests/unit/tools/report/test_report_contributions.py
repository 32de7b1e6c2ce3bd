"""Who contributed how much, how uneven the data are, and what of a report is seen first."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from forager.server_app.run_folder import RunFolder
from forager.tools.engine import run_local
from forager.tools.report import write_rounds_csv
from forager.tools.report.client_tables import clients_table, contributions, skew_sentence
from forager.tools.report.history import History
from forager.tools.report.page import render


def event(number: int, **lists: list[Any]) -> dict[str, Any]:
    usual = {"clients": ["a", "b"], "bytes-up": [10, 20], "samples": [5, 15], "norms": [1.0, 2.0]}
    return {"event": "contributed", "round": number, **usual, **lists}


def test_the_rounds_of_a_client_are_added_up_and_a_repeated_round_counts_once() -> None:
    log = [event(1, shares=[0.9, 0.1]), event(1, shares=[0.25, 0.75]), event(2, shares=[-0.5, 1.5])]
    found = contributions(History.from_events(log))
    assert found["a"].rounds == 2
    assert found["a"].share == pytest.approx(-0.125)
    assert found["b"].share == pytest.approx(1.125)
    assert (found["b"].bytes_up, found["b"].samples, found["b"].norms) == (40, 30, 4.0)


def test_a_log_without_shares_or_of_strangers_is_read_as_far_as_it_goes() -> None:
    short = event(1, shares=[], norms=[None])
    found = contributions(History.from_events([short]))
    assert (found["a"].bytes_up, found["a"].share, found["b"].norms) == (10, 0.0, 0.0)


def test_skew_says_what_is_known() -> None:
    held = {"event": "classes-spread", "clients": 2, "counts": [[6, 0], [0, 6]]}
    assert "labels 0.50" in skew_sentence(History.from_events([held]))
    assert "quantity 0.00" in skew_sentence(History.from_events([held]))
    devices = skew_sentence(History.from_events([event(1, shares=[0.5, 0.5])]))
    assert "quantity 0.25" in devices
    assert "that of labels is not known" in devices
    assert skew_sentence(History.from_events([])) == ""


def test_a_run_tells_who_contributed_in_report_and_csv(tmp_path: Path) -> None:
    keys = {"num-clients": 4, "clients-per-round": 2, "num-server-rounds": 3, "report": False}
    run = run_local({**keys, "strategy": "fedavg", "output-dir": str(tmp_path)})
    folder = RunFolder(run.folder)
    write_rounds_csv(folder)
    with (run.folder / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    shares = [float(row["share-of-the-change"]) for row in rows]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    assert sum(int(row["updates-taken"]) for row in rows) == 6
    history = History.from_events(folder.read_events())
    up = sum(int(row["bytes-up"]) for row in rows)
    assert up == history.total("bytes-up")
    table = clients_table(history)
    assert "who contributed how much" in table
    assert f"{100 * shares[0]:.1f} %" in table
    page = render("mine", {}, history)
    first = page[: page.index("More details")]
    assert first.count("<figure>") == 1
    assert len(re.findall("<li", first)) == 3
    rest = page[page.index("How it works") if "How it works" in page else len(first) :]
    assert "<figure>" not in re.sub(r"<details>.*?</details>", "", rest, flags=re.DOTALL)
