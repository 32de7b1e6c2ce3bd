"""The pages in a real browser: they render, complain of nothing, sort and answer the pointer."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forager.benchmarks.chromium import Tab, chromium
from forager.benchmarks.report_size import write_run
from forager.tools.engine.local import run_local
from forager.tools.experiments.compare.document import document
from forager.tools.experiments.compare.page import render
from forager.tools.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "tools" / "experiments"))

from made_up import comparison, seeds


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def page(tmp_path: Path) -> Path:
    heights = {"fedavg": 0.7, "fedprox": 0.71, "cosage": 0.5, "fedyogi": 0.8}
    runs = {name: seeds(height, cost=1000 * height) for name, height in heights.items()}
    runs["stopped"] = seeds(0.3, rounds=11, cost=900.0)
    path = tmp_path / "compare.html"
    path.write_text(render(document(comparison(runs | {"broken": []}, stopped=0, broken=0))))
    return path


FIRST = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent)"


def test_the_table_of_a_comparison_sorts(tab: Tab, page: Path) -> None:
    tab.open(page)
    assert tab.evaluate(FIRST)[0] == "fedyogi"
    tab.point("th:nth-child(3) button", 0.5, 0.5, click=True)
    downwards = ["fedyogi", "fedprox", "fedavg", "cosage", "stopped", "broken"]
    assert tab.evaluate(FIRST) == downwards
    tab.point("th:nth-child(3) button", 0.5, 0.5, click=True)
    assert tab.evaluate(FIRST) == [*downwards[-2::-1], "broken"]
    tab.point("th:nth-child(1) button", 0.5, 0.5, click=True)
    tab.point("th:nth-child(1) button", 0.5, 0.5, click=True)
    assert tab.evaluate(FIRST) == sorted(downwards)
    assert tab.complaints == []


@pytest.mark.parametrize("axis", ["rounds", "bytes", "work"])
def test_hovering_tells_what_the_lines_say(tab: Tab, page: Path, axis: str) -> None:
    tab.open(page)
    tip = f"document.querySelector('[data-plot={axis}] .tip')"
    assert tab.evaluate(f"{tip}.hidden") is True
    tab.point(f"[data-plot={axis}] svg", 0.9, 0.6)
    assert tab.evaluate(f"{tip}.hidden") is False
    lines = tab.evaluate(f"{tip}.textContent").splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["fedyogi", "fedprox"]
    assert "stopped" not in " ".join(lines)  # it never came this far
    tab.point("h1", 0.5, 0.5)
    assert tab.evaluate(f"{tip}.hidden") is True
    assert tab.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_a_comparison_fits_the_screen(
    tab: Tab, page: Path, width: int, dark: bool, tmp_path: Path
) -> None:
    tab.open(page, width=width, dark=dark)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
    curves = tab.evaluate("document.querySelectorAll('figure svg path[style*=\"--s\"]').length")
    assert curves > 10
    assert tab.complaints == []
    tab.screenshot(tmp_path / f"compare-{width}-{'dark' if dark else 'light'}.png")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run in which every method has something to show."""
    return write_report(write_run(tmp_path_factory.mktemp("runs"), clients=40, rounds=30))


PICTURES = [
    "metric-accuracy",
    "loss",
    "participation",
    "choices",
    "candidates",
    "why-chosen",
    "bytes",
    "seconds",
    "classes",
    "coreset-samples",
    "clean",
    "coreset-classes",
    "stores",
    "plan",
    "cohorts",
    "cohort-metric",
    "members",
    "split-criterion",
    "similarity",
    "troubles",
    "slow",
]
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"


def unfold(tab: Tab) -> None:
    tab.evaluate(UNFOLD)


PLAIN = ["metric-accuracy", "loss", "participation", "choices", "bytes", "seconds", "classes"]


@pytest.mark.parametrize(
    ("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)]
)
def test_a_report_shows_all_pictures_on_every_screen(
    tab: Tab, report: Path, width: int, dark: bool
) -> None:
    tab.open(report, width=width, dark=dark)
    shown = "[...document.querySelectorAll('[data-plot]')].map(plot => plot.dataset.plot)"
    assert tab.evaluate(shown) == PICTURES
    sizes = tab.evaluate(
        "[...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect())"
        ".map(box => [box.width, box.height, box.right])"
    )
    for across, along, right in sizes:
        assert across > 250
        assert along > 100
        assert right <= width
    captions = tab.evaluate(
        "[...document.querySelectorAll('figcaption')].map(words => words.textContent.length)"
    )
    assert min(captions) > 60
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []


def test_words_in_pictures_stay_inside_them(tab: Tab, report: Path) -> None:
    tab.open(report)
    cut_off = tab.evaluate(
        "[...document.querySelectorAll('figure svg')].flatMap(svg => {"
        "const frame = svg.getBoundingClientRect();"
        "return [...svg.querySelectorAll('text')].filter(text => {"
        "const box = text.getBoundingClientRect();"
        "return box.left < frame.left - 1 || box.right > frame.right + 1"
        " || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;"
        "}).map(text => text.textContent); })"
    )
    assert cut_off == []


@pytest.mark.parametrize(
    ("picture", "place", "words"),
    [
        ("metric-accuracy", (0.5, 0.5), ["round ", "%  server's test", "%  clients' mean"]),
        ("bytes", (0.5, 0.5), ["round ", "down, to clients", "selecting"]),
        ("choices", (0.5, 0.5), ["client-", "round "]),
        ("clean", (0.5, 0.5), ["60 %  all their data"]),
        ("stores", (0.5, 0.5), ["class ", "round "]),
        ("classes", (0.5, 0.5), ["client ", "class "]),
        ("cohorts", (0.7, 0.5), ["10 clients  cohort 0.1"]),
        ("cohorts", (0.2, 0.5), ["40 clients  cohort 0"]),
        ("similarity", (0.5, 0.5), ["client-"]),
        ("troubles", (0.5, 0.5), ["failed"]),
        ("slow", (0.5, 0.5), ["s  slowest reply", "s  median"]),
    ],
)
def test_a_report_s_pictures_answer_the_pointer(
    tab: Tab, report: Path, picture: str, place: tuple[float, float], words: list[str]
) -> None:
    tab.open(report)
    unfold(tab)
    tip = f"document.querySelector('[data-plot={picture}] .tip')"
    assert tab.evaluate(f"{tip}.hidden") is True
    tab.point(f"[data-plot={picture}] svg", *place)
    assert tab.evaluate(f"{tip}.hidden") is False
    for word in words:
        assert word in tab.evaluate(f"{tip}.textContent")
    tab.point("h1", 0.5, 0.5)
    assert tab.evaluate(f"{tip}.hidden") is True
    assert tab.complaints == []


def test_hovering_over_choices_tells_what_the_log_says(tab: Tab, tmp_path: Path) -> None:
    run = run_local(
        {
            "num-server-rounds": 9,
            "num-clients": 4,
            "clients-per-round": 1,
            "client-selector": "round-robin",
            "output-dir": str(tmp_path),
            "fraction-evaluate": 0.0,
        }
    )
    tab.open(run.folder / "report.html")
    unfold(tab)
    told: list[str] = []
    box = tab.evaluate("JSON.parse(document.getElementById('plots').textContent).choices.box")
    for column in range(9):
        x = box[0] + (column + 0.5) / 9 * (box[2] - box[0])
        tab.point("[data-plot=choices] svg", x, box[1] + 0.125 * (box[3] - box[1]))
        tip = tab.evaluate("document.querySelector('[data-plot=choices] .tip').textContent")
        place, state = tip.splitlines()
        assert place == f"0, round {column + 1}"
        told.append(state)
    first = told.index("chosen")
    assert told[:first] == ["never chosen so far"] * first
    turn = ["chosen", "waiting for 1 round", "waiting for 2 rounds", "waiting for 3 rounds"]
    assert told[first:] == (3 * turn)[: 9 - first]


def test_the_tables_of_a_report_sort(tab: Tab, report: Path) -> None:
    tab.open(report)
    unfold(tab)
    column = (
        "[...document.querySelectorAll('details:has(th:nth-child(5)) table')].at(-1)"
        ".querySelectorAll('tbody tr')"
    )
    counts = f"[...{column}].map(row => Number(row.cells[1].textContent))"
    before = tab.evaluate(counts)
    tab.evaluate(
        "[...document.querySelectorAll('details:has(th:nth-child(5)) table')].at(-1)"
        ".querySelectorAll('th button')[1].click()"
    )
    assert tab.evaluate(counts) == sorted(before, reverse=True) != before
    assert tab.complaints == []


def test_a_table_can_be_copied_as_csv(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.evaluate(
        "window.copied = []; navigator.clipboard.writeText = async text => { copied.push(text); }"
    )
    tab.point("button.copy", 0.5, 0.5, click=True)
    (copied,) = tab.evaluate("copied")
    lines = copied.splitlines()
    assert lines[0].startswith("strategy,rounds,accuracy,at equal rounds")
    assert lines[1].startswith("fedyogi,100,80.5 %")
    assert len(lines) == 7
    assert '"' in lines[2]  # an interval has a comma in it
    assert tab.complaints == []


def test_a_plain_run_has_no_empty_boxes(tab: Tab, tmp_path: Path) -> None:
    run = run_local({"num-server-rounds": 3, "output-dir": str(tmp_path), "fraction-evaluate": 0.0})
    for width in (1200, 390):
        tab.open(run.folder / "report.html", width=width)
        shown = "[...document.querySelectorAll('[data-plot]')].map(plot => plot.dataset.plot)"
        assert tab.evaluate(shown) == PLAIN
        folded = tab.evaluate("[...document.querySelectorAll('details')].map(d => d.innerText)")
        assert all(text.strip() for text in folded)
        assert tab.evaluate("document.querySelector('figure').getBoundingClientRect().bottom") < (
            900 if width == 1200 else 1400
        )
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []
