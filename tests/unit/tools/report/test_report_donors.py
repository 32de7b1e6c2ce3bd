import re
from typing import Any

from forager.tools.report.history import History
from forager.tools.report.similarity_charts import MOST_TARGETS, donors_section

SIMILARITY: dict[str, Any] = {
    "event": "similarity",
    "round": 2,
    "clients": ["a", "b", "<c>"],
    "matrix": [[1.0, 0.25, 0.75], [0.25, 1.0, 0.5], [0.75, 0.5, 1.0]],
    "labels": {"a": "0", "b": "0", "<c>": "1"},
}


def section(*events: dict[str, Any]) -> str:
    shown = donors_section(History.from_events(events))
    return re.sub(r' data-key="[^"]*"|<span class="words">|</span>', "", shown)


def test_donors_are_in_the_order_of_their_similarity() -> None:
    page = section({**SIMILARITY, "matrix": [[1.0] * 3] * 3}, SIMILARITY)  # the last one counts
    assert "<td>a</td><td>&lt;c&gt; (0.75), b (0.25)</td>" in page
    assert "<td>b</td><td>&lt;c&gt; (0.50), a (0.25)</td>" in page
    assert "tau" not in page


def test_agreement_with_the_truth_is_shown_where_it_is_known() -> None:
    known = {
        "event": "alignment",
        "clients": ["a", "b", "<c>"],
        "scores": {"tau": 0.5, "R@4": None},
        "tau-labels": [1.0, -1.0, None],
    }
    page = section(SIMILARITY, known)
    assert "Against the truth: tau 0.500." in page
    assert "<td>b</td><td>&lt;c&gt; (0.50), a (0.25)</td><td>-1.00</td><td></td>" in page


def test_nothing_is_shown_without_similarities_or_for_damaged_ones() -> None:
    assert section() == ""
    for damage in (
        {"clients": ["a"], "matrix": [[1.0]]},
        {"clients": "ab"},
        {"matrix": None},
        {"matrix": [[1.0, 2.0]]},
        {"matrix": [1.0, 2.0, 3.0]},
    ):
        assert section({**SIMILARITY, **damage}) == ""


def test_a_long_list_is_cut() -> None:
    count = MOST_TARGETS + 7
    clients = [f"client-{i}" for i in range(count)]
    page = section({**SIMILARITY, "clients": clients, "matrix": [[0.5] * count] * count})
    assert page.count("<tr>") == MOST_TARGETS + 1
    assert "7 more clients are in events.jsonl" in page
