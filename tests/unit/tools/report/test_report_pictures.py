"""The pictures of methods: there when a run has such data, sound when its log makes no sense."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.benchmarks.report_size import made_up_events, write_run
from forager.tools.report import (
    cohort_charts,
    coreset_charts,
    page,
    participation_charts,
    write_report,
)
from forager.tools.report.axes import rounds_axis
from forager.tools.report.choice_charts import last_choice_table
from forager.tools.report.class_charts import classes_sentence, stores_chart, stores_sentence
from forager.tools.report.client_tables import client_rows, problems_table
from forager.tools.report.cohort_tree import CohortDescent
from forager.tools.report.history import History
from forager.tools.report.participation_charts import choices_chart
from forager.tools.report.similarity_charts import (
    last_likeness,
    similarity_chart,
    similarity_sentence,
)
from forager.tools.report.svg import Picture
from forager.tools.report.trouble_charts import slow_clients, troubles_chart
from matplotlib.figure import Figure

EVENTS = list(made_up_events(12, 9))


def pictures_of(history: History) -> list[Picture]:
    return [picture for _, pictures in page.chapters(history) for picture in pictures]


def history_without(*kinds: str) -> History:
    return History.from_events(event for event in EVENTS if event["event"] not in kinds)


def names(history: History) -> list[str]:
    drawn = [picture.draw(history) for picture in pictures_of(history)]
    return [plot.name for plot in drawn if plot is not None]


@cache
def all_names() -> list[str]:
    return names(History.from_events(EVENTS))


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paint pictures without writing them, which takes most of the time; one test writes all."""
    monkeypatch.setattr(Figure, "savefig", lambda self, text, **_: text.write("<svg></svg>"))


def test_every_picture_has_a_name_of_its_own_and_a_caption() -> None:
    found, pictures = all_names(), pictures_of(History.from_events(EVENTS))
    assert len(found) == len(set(found)) == len(pictures) == 21
    history = History.from_events(EVENTS)
    captions = [re.sub("<[^>]*>", "", picture.words(history)) for picture in pictures]
    assert all(len(caption) > 60 for caption in captions)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("coresets", {"coreset-samples", "clean", "coreset-classes"}),
        ("streams", {"stores"}),
        ("classes-spread", {"classes"}),
        ("cohorts", {"cohorts", "cohort-metric", "members", "split-criterion"}),
        ("planned", {"plan"}),
        ("cohorts-evaluated", {"cohort-metric"}),
        ("similarity", {"similarity"}),
    ],
)
@pytest.mark.usefixtures("painted")
def test_a_method_that_was_not_used_leaves_no_empty_box(kind: str, missing: set[str]) -> None:
    assert set(all_names()) - set(names(history_without(kind))) == missing


def test_a_method_s_numbers_are_told_in_words(tmp_path: Path) -> None:
    text = write_report(write_run(tmp_path, 12, 9)).read_text()
    for words in (
        "of the samples that clients trained on was clean, against 60.0 % of all their data",
        "Of 900 samples that arrived, the clients&#x27; stores hold",
        "The clients fell into 4 cohorts of 3 clients; with their models accuracy is 70.0 %",
        "two clients of one cluster had a similarity of 0.7",
        "Clients may use different models here",
        "times among the slowest 3",
    ):
        assert words in text


FIELDS = [
    ("coresets", ["samples", "labels", "sizes", "clean-share"]),
    ("streams", ["stored", "arrived"]),
    ("selected", ["others", "other-scores", "other-ages"]),
    ("classes-spread", ["counts"]),
    ("baseline", ["metrics", "what"]),
    ("cohorts", ["members"]),
    ("cohorts-evaluated", ["accuracy", "means"]),
    ("evaluated", ["metrics", "spread", "accuracy", "accuracy-worst-10", "loss"]),
    ("regrouped", ["cohorts"]),
    ("similarity", ["clients", "matrix", "labels"]),
    ("exchange", ["reply-seconds", "kind"]),
    ("evaluated", ["cohorts"]),
]


def nonsense(kind: str, fields: list[str], value: Any) -> History:
    """Return a run's history in which some fields of one kind of event hold something else."""
    return History.from_events(
        e | dict.fromkeys(fields, value) if e["event"] == kind else e for e in EVENTS
    )


@pytest.mark.parametrize("value", [None, "x", -1, [], {}, [None], {"0": None}, float("nan"), [[1]]])
@pytest.mark.parametrize(("kind", "fields"), FIELDS)
@pytest.mark.usefixtures("painted")
def test_a_log_that_makes_no_sense_still_makes_a_page(
    kind: str, fields: list[str], value: Any
) -> None:
    history = nonsense(kind, fields, value)
    for picture in (
        coreset_charts.samples_by_origin,
        coreset_charts.clean_shares,
        coreset_charts.coresets_sentence,
        stores_sentence,
        cohort_charts.cohorts_sentence,
        similarity_sentence,
        slow_clients,
        classes_sentence,
        last_choice_table,
    ):
        picture(history)
    if value == "x":  # painting takes long
        assert "participation" in names(history)


def test_what_is_left_of_a_log_without_any_sense_is_written() -> None:
    odd = {kind: dict.fromkeys(fields, "x") for kind, fields in FIELDS}
    history = History.from_events(event | odd.get(event["event"], {}) for event in EVENTS)
    assert "participation" in names(history)


def test_cohorts_that_go_on_under_other_names_keep_their_line() -> None:
    tree = CohortDescent(
        History.from_events(
            [
                {"event": "cohorts", "round": 1, "members": {"0": 10}},
                {"event": "regrouped", "round": 2, "cohorts": {"1.0": {"0": 6}, "1.1": {"0": 4}}},
                {"event": "cohorts", "round": 2, "members": {"1.0": 6, "1.1": 4}},
                {
                    "event": "regrouped",
                    "round": 3,
                    "cohorts": {"2.0": {"1.1": 4, "1.0": 1}, "2.1": {"1.0": 5}},
                },
                {"event": "cohorts", "round": 3, "members": {"2.0": 5, "2.1": 5}},
            ]
        )
    )
    line = {name: cohort.line for name, cohort in tree.cohorts.items()}
    assert line["2.0"] == line["1.1"] != line["2.1"] == line["1.0"] == line["0"]
    assert [cohort.name for cohort in tree.last()] == ["2.1", "2.0"]  # where their parents lay
    assert tree.rounds() == [1, 2, 3]


def test_a_cohort_that_never_trained_still_has_children() -> None:
    events = [
        {"event": "regrouped", "round": 1, "cohorts": {"a": {"0": 1.0}, "b": {"0": 1.0}}},
        {"event": "cohorts", "round": 1, "members": {"a": 3, "b": 2}},
    ]
    tree = CohortDescent(History.from_events(events))
    assert tree.cohorts["a"].parent == "0"
    assert cohort_charts.tree_chart(History.from_events(events)) is not None


def test_similarities_are_ordered_by_cluster() -> None:
    rng = np.random.default_rng(1)
    keys = [f"c{number}" for number in range(12)]
    labels = {key: int(rng.integers(3)) for key in keys[:-1]} | {keys[-1]: -1}
    matrix = rng.uniform(size=(12, 12))
    event = {"event": "similarity", "round": 4, "clients": keys, "labels": labels}
    history = History.from_events([event | {"matrix": matrix.tolist()}])
    found = last_likeness(history)
    assert found is not None
    assert found.clusters == sorted(found.clusters)
    assert found.clusters[0] == ""  # who belongs nowhere comes first
    for row, first in enumerate(found.clients):
        for column, second in enumerate(found.clients):
            before = matrix[keys.index(first), keys.index(second)]
            assert found.matrix[row, column] == pytest.approx(before)
    plot = similarity_chart(history)
    assert plot is not None
    assert plot.hover["values"][0][0] == round(100 * found.matrix[0, 0])


def test_slow_clients_are_named_with_what_they_cost() -> None:
    times = {1: {"a": 9.0, "b": 4.0}, 2: {"a": 6.0}, 3: {"b": 8.0}}
    events = [
        {
            "event": "exchange",
            "kind": "train",
            "round": current,
            "reply-seconds": {"median": 2.0, "slowest": slowest},
        }
        for current, slowest in times.items()
    ]
    chosen = {"event": "selected", "round": 1, "phase": "train", "chosen": ["a", "b", "c"]}
    history = History.from_events([chosen, *events])
    assert slow_clients(history) == [("a", 2, 7.5, 3.75), ("b", 2, 6.0, 3.0)]
    usual = {row["client"]: row["usual reply in s"] for row in client_rows(history)}
    assert usual == {"a": 7.5, "b": 6.0, "c": None}
    assert troubles_chart(history) is None
    assert problems_table(history) == ""


def test_of_very_many_clients_only_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History.from_events(EVENTS)
    whole = choices_chart(history)
    cells = len(history.clients) * 9
    monkeypatch.setattr(participation_charts, "MOST_CELLS", cells // 3)
    some = choices_chart(history)
    assert whole is not None
    assert some is not None
    assert whole.hover["rows"] == history.clients
    assert some.hover["rows"] == whole.hover["rows"][::3]
    assert "one client in 3" in some.svg
    assert len(some.hover["chosen"]) < len(whole.hover["chosen"])


def test_stores_of_cohorts_are_added_up() -> None:
    events = [
        {"event": "streams", "round": 1, "cohort": cohort, "stored": stored, "arrived": 5}
        for cohort, stored in (("0.0", [1, 2]), ("0.1", [3, 0]))
    ]
    history = History.from_events(events)
    plot = stores_chart(history)
    assert plot is not None
    assert plot.hover["values"] == [[4], [2]]
    assert "Of 10 samples that arrived, the clients' stores hold 6" in stores_sentence(history)


def test_a_round_that_was_tried_again_counts_once() -> None:
    event = {"event": "coresets", "round": 1, "sizes": [4], "clean-share": 0.5}
    again = event | {"samples": {"new": 4}, "clean-share": 1.0}
    history = History.from_events([event, again])
    assert coreset_charts.clean_shares(history) == {1: 1.0}
    assert coreset_charts.samples_by_origin(history) == {1: {"new": 4, "kept": 0.0, "random": 0.0}}


@pytest.mark.parametrize(("rounds", "edges"), [([1], (0, 2)), ([1, 2], (0.95, 2.05))])
def test_two_rounds_fill_the_axis_and_one_has_room(
    rounds: list[int], edges: tuple[float, float]
) -> None:
    axes = Figure().subplots()
    axes.plot(rounds, rounds)
    rounds_axis(axes)
    assert axes.get_xlim() == pytest.approx(edges)
