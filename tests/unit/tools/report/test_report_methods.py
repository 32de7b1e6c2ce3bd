"""What a report says of CosAge, ODE, Auxo and IOS."""

from typing import Any

import pytest
from forager.tools.report import page
from forager.tools.report.choice_charts import choices, last_choice_table
from forager.tools.report.class_charts import plan_chart, plan_sentence
from forager.tools.report.cohort_charts import cohorts_sentence, tree_chart
from forager.tools.report.cohort_charts import pictures as cohort_pictures
from forager.tools.report.cohort_tree import CohortDescent
from forager.tools.report.history import History
from forager.tools.report.member_charts import agreement_sentence, members_chart, members_table
from forager.tools.report.metric_charts import COSTS
from forager.tools.report.participation_charts import choices_chart
from forager.tools.report.similarity_charts import similarity_chart
from forager.tools.report.story import last_and_best, summary


def started(**config: Any) -> dict[str, Any]:
    names = {key.replace("__", "."): value for key, value in config.items()}
    settings = {key.replace("_", "-"): value for key, value in names.items()}
    return {"event": "run-started", "config": settings}


def cohorts(current: int, where: dict[str, str], **more: Any) -> dict[str, Any]:
    members = {name: list(where.values()).count(name) for name in where.values()}
    return {"event": "cohorts", "round": current, "members": members, "moved": where, **more}


def test_cosage_says_why_each_client_was_chosen() -> None:
    chosen = {"chosen": ["a", "b", "c"], "scores": [0.5, -0.25, None], "ages": [0, 7, 1]}
    event = {"event": "selected", "round": 4, **chosen}
    history = History.from_events([started(client_selector="cosage"), event])
    assert [(c.client, c.bin, c.age) for c in choices(history)[4]] == [("b", 1, 7), ("a", 2, 0)]
    table = last_choice_table(history)
    assert "Why each client of round 4 was chosen" in table
    assert "-0.250" in table
    # Scores of other rules are something else.
    assert not choices(History.from_events([started(client_selector="oort"), event]))


def test_odes_plan_says_who_stores_what() -> None:
    quota = {"a": [3, 0], "b": [1, 1]}
    event = {"event": "planned", "round": 2, "clients": 2, "stored": [4, 1], "quota": quota}
    history = History.from_events([event])
    plot = plan_chart(history)
    assert plot is not None
    assert plot.hover["values"] == [[3, 0], [1, 1]]
    assert "of round 2, gives each of 2 clients 1 to 2 classes to store." in plan_sentence(history)
    assert plan_chart(History.from_events([{"event": "planned", "round": 1}])) is None


@pytest.mark.parametrize(
    ("rule", "reasons", "why", "limit"),
    [
        ("auxo", {"0": "a cohort splits after 20 rounds"}, "a cohort splits after 20 rounds", 0.71),
        ("auxo", None, "no split would have reduced heterogeneity enough", 0.71),
        ("split-test", {"0": "no distinct groups: 90%"}, "no distinct groups: 90%", 0.15),
    ],
)
def test_a_run_without_a_split_shows_the_criterion_and_says_why(
    rule: str, reasons: dict[str, str] | None, why: str, limit: float
) -> None:
    keys = [str(number) for number in range(9)]
    events = [started(cohorts=rule)]
    for current in (1, 2):
        events += [
            {"event": "selected", "round": current, "chosen": keys},
            cohorts(current, dict.fromkeys(keys, "0"), heterogeneity={"0": 0.9}, reasons=reasons),
            {"event": "round-finished", "round": current, "seconds": 1.0},
        ]
    history = History.from_events(events)
    drawn = {p.title: p.draw(history) for _, chapter in page.chapters(history) for p in chapter}
    assert drawn["How the cohorts grew"] is None
    criterion = drawn["Would a split pay?"]
    assert criterion is not None
    assert criterion.hover["lines"]["cohort 0"] == [[1, 2], [0.9, 0.9]]
    assert criterion.hover["lines"]["enough for 2 parts"][1] == pytest.approx([limit] * 2, abs=0.01)
    assert f"which was never split: {why}" in cohorts_sentence(history)


def test_cohorts_are_compared_with_planted_groups() -> None:
    found = {"0": "a", "1": "b", "2": "a", "3": "b"}
    config = started(groups__kind="rotation", groups__count=2)
    history = History.from_events([config, cohorts(1, found)])
    assert "2 planted groups; the cohorts agree with them to 1.00" in agreement_sentence(history)
    assert "planted group" in members_table(history)
    plot = members_chart(history)
    assert plot is not None
    assert plot.hover["rows"][0] == "0 (group 0)"
    unknown = History.from_events([started(groups__kind="none"), cohorts(1, found)])
    assert agreement_sentence(unknown) == ""


def test_a_repeated_clustering_keeps_names_and_colours() -> None:
    first = {"a": "1.0", "b": "1.0", "c": "1.1"}
    again = {"a": "2.1", "b": "2.1", "c": "2.0"}
    origins = {"2.1": {"1.0": 2.0}, "2.0": {"1.1": 1.0}}
    history = History.from_events(
        [
            cohorts(1, first),
            {"event": "regrouped", "round": 2, "cohorts": origins},
            cohorts(2, again),
        ]
    )
    tree = CohortDescent(history)
    assert [tree.shown(name) for name in ("1.0", "2.1", "1.1", "2.0")] == ["A", "A", "B", "B"]
    plot = tree_chart(history)
    assert plot is not None
    assert plot.hover["lines"]["cohort A"] == [[1, 2], [2, 2]]
    named = CohortDescent(
        History.from_events(
            [
                cohorts(1, {"a": "0", "b": "0"}),
                {"event": "regrouped", "round": 2, "cohorts": {"0.0": {"0": 1}, "0.1": {"0": 1}}},
                cohorts(2, {"a": "0.0", "b": "0.1"}),
            ]
        )
    )
    assert named.shown("0.1") == "0.1"  # a tree's names say where a cohort comes from


def test_where_clients_have_models_of_their_own_their_data_is_the_headline() -> None:
    clients = {"spread": {"accuracy": {"mean": 0.91, "worst-10": 0.7}}}
    tested = [
        {"event": "evaluated", "round": 1, "metrics": {"accuracy": 0.27}},
        {"event": "evaluated", "round": 1, "where": "clients", **clients},
    ]
    several = [cohorts(1, {"a": "0.0", "b": "0.1"})]
    history = History.from_events([*several, *tested])
    assert last_and_best(history) == ((1, 0.91), (1, 0.91))
    text = page.render("run", {}, history)
    answer = "Accuracy after round 1 is 91.0 % on clients&#x27; own data, on average"
    assert f'<p class="answer">{answer}' in text
    assert "On the server&#x27;s test data, which represent all" in text
    told = dict(summary(history))
    assert told["final accuracy"] == "91.0 % on clients' own data (round 1)"
    assert told["worst tenth of clients"] == "70.0 % on their own data"
    assert told["on the server's test data"] == "accuracy 27.0 %"
    one = History.from_events([cohorts(1, {"a": "0", "b": "0"}), *tested])
    assert last_and_best(one) == ((1, 0.27), (1, 0.27))
    untested = page.render("run", {}, History.from_events([*several, tested[0]]))
    assert "set data.client-test-share and fraction-evaluate" in untested


def test_who_is_not_connected_is_not_waiting() -> None:
    events = [
        {"event": "selected", "round": 1, "chosen": ["a", "b"]},
        {"event": "round-finished", "round": 1, "seconds": 1.0},
        {"event": "selected", "round": 2, "chosen": ["b"]},
        {"event": "round-finished", "round": 2, "seconds": 1.0, "away": ["a", "stranger"]},
    ]
    plot = choices_chart(History.from_events(events))
    assert plot is not None
    assert plot.hover["away"] == "QAA="  # the second bit of the first row
    without = choices_chart(History.from_events(events[:3]))
    assert without is not None
    assert "away" not in without.hover


def test_captions_speak_only_of_what_is_there() -> None:
    exchange = {"event": "exchange", "round": 1, "kind": "train", "bytes-down": 9, "bytes-up": 9}
    plain = History.from_events([exchange, {"event": "round-finished", "round": 1, "seconds": 1}])
    for picture in COSTS:
        assert "dashed" not in picture.words(plain)
        assert "Spikes" not in picture.words(plain)
    uplink = {"event": "uplink", "round": 1, "bytes-sparse": 6, "bytes-dense": 60}
    assert "dashed" in COSTS[0].words(History.from_events([exchange, uplink]))
    rounds = [
        {"event": "round-finished", "round": number, "seconds": seconds}
        for number, seconds in enumerate((1, 1, 9))
    ]
    assert "Spikes" in COSTS[1].words(History.from_events(rounds))


def test_a_run_that_failed_at_once_has_whole_rounds_on_its_axis() -> None:
    event = {"event": "evaluated", "round": 1, "metrics": {"accuracy": 0.1}}
    history = History.from_events([event])
    plots = [p.draw(history) for _, chapter in page.chapters(history) for p in chapter]
    (plot,) = [plot for plot in plots if plot is not None]
    assert plot.hover["x"] == [0, 2]


def test_cohorts_that_are_numbered_again_have_one_name_in_every_picture() -> None:
    events = [
        cohorts(1, {"a": "1.0", "b": "1.0", "c": "1.1"}),
        {"event": "regrouped", "round": 2, "cohorts": {"2.0": {"1.1": 1}, "2.1": {"1.0": 2}}},
        cohorts(2, {"a": "2.1", "b": "2.1", "c": "2.0"}),
        {
            "event": "similarity",
            "round": 2,
            "clients": ["a", "b", "c"],
            "matrix": [[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]],
            "labels": {"a": "2.1", "b": "2.1", "c": "2.0"},
        },
    ]
    history = History.from_events([started(), *events])
    plot = similarity_chart(history)
    assert plot is not None
    assert sorted(plot.hover["rows"]) == ["a (A)", "b (A)", "c (B)"]
    table = members_table(history)
    assert "--cohort 2.1" in table  # what the model's file is called
    captions = [each.words(history) for each in cohort_pictures(history)]
    assert not any("parent" in caption for caption in captions)
