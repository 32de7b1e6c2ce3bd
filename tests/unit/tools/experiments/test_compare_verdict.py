"""What is said of made-up runs."""

from typing import Any

import pytest
from fake_candidates import rows
from forager.core.tasks.metrics import Metric
from forager.tools.experiments.compare.charts import curves
from forager.tools.experiments.compare.comparison import Comparison
from forager.tools.experiments.compare.document import document
from forager.tools.experiments.compare.page import render
from forager.tools.experiments.compare.table import text_table
from forager.tools.experiments.measures import at_equal, level
from made_up import comparison, record, seeds


def verdict(found: Comparison) -> list[str]:
    return document(found).verdict


def test_no_difference_is_said_plainly_and_the_baseline_is_what_to_run() -> None:
    lines = verdict(comparison({"fedavg": seeds(0.8), "fedprox": seeds(0.801)}))
    assert lines[0] == (
        "Run fedavg: it is level with the best, fedprox (0.1 points [0.1, 0.1] apart)."
    )
    assert "At equal bytes, against fedprox: fedavg (-0.1) no difference." in lines


def test_a_clear_lead_is_named_and_who_was_stopped_is_compared_where_it_was() -> None:
    slow = comparison(
        {"fedavg": seeds(0.7), "fedyogi": seeds(0.8), "late": seeds(0.3, rounds=11)}, late=0
    )
    lines = verdict(slow)
    assert lines[0] == "Run fedyogi: it beats fedavg by 10.0 points [10.0, 10.0]."
    assert lines[1].endswith(
        "At equal rounds, against fedyogi: fedavg (-10.0), late* (-50.0) worse."
    )
    assert lines[-1].startswith("* Stopped early for being behind")
    assert "no more than chance" not in lines[-1]
    assert document(slow).best == "fedyogi"
    assert [finding.name for finding in document(slow).strategies] == ["fedyogi", "fedavg", "late"]


MAE = Metric("mae", higher_is_better=False)


def errors(level: float, rounds: int = 100, worst: float = 2.0) -> list[list[dict[str, Any]]]:
    """Runs that are judged by an error, one list of rows per seed."""
    return [
        [
            {
                **row,
                "mae": level + 0.1 * seed,
                "clients-mae-mean": level,
                "clients-mae-worst-10": worst * level,
            }
            for row in rows(0.5, rounds, seed)
        ]
        for seed in range(4)
    ]


def test_the_lowest_error_wins() -> None:
    found = comparison(
        {"fedavg": errors(50.0), "fedyogi": errors(40.0, worst=3.0), "late": errors(90.0, 11)},
        metric=MAE,
        late=0,
    )
    lines = verdict(found)
    assert lines[0] == "Run fedyogi: it beats fedavg by 10 [10, 10]."
    assert lines[1].startswith("MAE on the server's test data: fedyogi reaches 40.15 (95 % int")
    assert lines[1].endswith("At equal rounds, against fedyogi: fedavg (+10), late* (+50) worse.")
    worst = next(line for line in lines if line.startswith("The worst tenth"))
    assert worst == (
        "The worst tenth of clients has 120 with fedyogi. "
        "At equal rounds, against fedyogi: fedavg (-20) better; late* (+60) worse."
    )
    assert document(found).best == "fedyogi"
    assert [finding.name for finding in document(found).strategies] == ["fedyogi", "fedavg", "late"]
    told = document(found)
    assert told.recommended == "fedyogi"
    assert told.strategies[1].against["rounds"].verdict == "worse"
    assert "points" not in " ".join(lines)


def test_errors_within_two_per_cent_are_no_difference() -> None:
    lines = verdict(comparison({"fedavg": errors(40.5), "fedyogi": errors(40.0)}, metric=MAE))
    assert lines[0] == ("Run fedavg: it is level with the best, fedyogi (0.5 [0.5, 0.5] apart).")


def test_the_table_and_the_page_speak_of_the_metric() -> None:
    found = document(comparison({"fedavg": errors(50.0), "fedyogi": errors(40.0)}, metric=MAE))
    table = text_table(found)
    assert "MAE" in table.splitlines()[0]
    assert "40.15 ± 0.13" in table
    page = render(found)
    assert "<h3>MAE by round</h3>" in page
    assert "Take\nthe line that is lowest" in page
    assert "accuracy" not in page.lower()


def test_chance_is_not_taken_for_a_lead() -> None:
    restless = [rows(0.7 + shift, 100) for shift in (0.0, 0.2, -0.1, 0.1)]
    found = comparison({"fedavg": seeds(0.7), "fedyogi": restless})
    lines = verdict(found)
    assert lines[0].startswith("Run fedavg: fedyogi came out ahead by 4.7 points [-15")
    assert "may be chance" in lines[0]
    assert document(found).recommended == "fedavg"
    one = verdict(comparison({"fedavg": seeds(0.7)[:1], "fedyogi": seeds(0.8)[:1]}))
    assert "may be chance" in one[0]
    assert one[1] == "1 seed cannot rule out chance; use --seeds 5."


def test_equal_bytes_cut_the_costly_run_short() -> None:
    steady, rising = rows(0.6, 100, cost=10.0), rows(0.0, 100, cost=100.0)
    for number, row in enumerate(rising):
        row["accuracy"] = number / 100
    cheap, costly = {0: record("a", 0, steady)}, {0: record("b", 0, rising)}
    assert at_equal(cheap, costly, "round", "accuracy").mean < -0.2
    # 1,000 bytes pay for ten rounds of the other, of which the last fifth counts.
    gap = at_equal(cheap, costly, "bytes", "accuracy")
    assert gap.mean == pytest.approx(level(steady, "accuracy") - (0.09 + 0.10) / 2)


def test_failed_runs_are_told_and_the_rest_compared() -> None:
    found = comparison({"fedavg": seeds(0.7), "broken": []}, broken=0)
    found.failures.append(record("broken", 1, [], "RuntimeError"))
    lines = verdict(found)
    assert lines[0] == "Run fedavg: there was nothing to compare it with."
    assert lines[-1] == "Failed: broken (1 run); runs.jsonl has the reasons."
    nothing = verdict(comparison({"fedavg": [], "broken": [], "x": [rows(0.1, 3)]}, x=0))
    assert nothing == ["No strategy can be recommended: every run to the end failed."]


def test_without_client_tests_the_worst_tenth_is_unknown() -> None:
    bare = [[{**row, "clients-accuracy-worst-10": None} for row in run] for run in seeds(0.7)]
    lines = verdict(comparison({"fedavg": bare}))
    assert "The worst tenth of clients was not measured: data.client-test-share is 0." in lines


def test_several_models_are_judged_on_the_clients_own_data() -> None:
    specialised = [
        [{**row, "clients-accuracy-mean": 0.9} for row in run] for run in seeds(0.4, cost=90.0)
    ]
    plain = [[{**row, "clients-accuracy-mean": 0.7} for row in run] for run in seeds(0.7)]
    found = comparison({"fedavg": plain, "split-test": specialised})
    lines = verdict(found)
    assert lines[1].startswith("Accuracy on the server's test data: fedavg reaches 70.5 %")
    assert (
        "Accuracy on the clients' own data: 70.0 % with fedavg. "
        "At equal rounds, against fedavg: split-test (+20.0) better. "
        "Add --goal clients if these data are what counts."
    ) in lines
    by_clients = comparison({"fedavg": plain, "split-test": specialised}, goal="clients")
    assert verdict(by_clients)[0] == "Run split-test: it beats fedavg by 20.0 points [20.0, 20.0]."
    assert document(by_clients).curves["split-test"].mean[-1] == 0.9


def test_two_seeds_have_no_interval_worth_showing() -> None:
    found = comparison({"fedavg": seeds(0.7)[:2], "fedyogi": seeds(0.8)[:2]})
    told = document(found)
    table, lines = text_table(told), verdict(found)
    assert "-10.0 ▼" in table
    assert "[" not in table
    assert "interval" not in lines[1]
    assert (
        max(map(len, text_table(document(comparison({"fedavg": seeds(0.7)}))).splitlines())) <= 80
    )
    picture = curves(told, "rounds").svg
    several = curves(document(comparison({"fedavg": seeds(0.7)})), "rounds").svg
    assert "opacity: 0.18" not in picture
    assert "opacity: 0.18" in several
