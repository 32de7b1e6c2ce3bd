"""The pages in a real browser: they render, complain of nothing, sort and answer the pointer."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Tab, chromium

from compare.document import document
from compare.page import render
from server_app.local import run_local

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "compare"))

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


def test_a_run_s_report_opens_without_a_complaint(tab: Tab, tmp_path: Path) -> None:
    run = run_local({"num-server-rounds": 3, "output-dir": str(tmp_path), "fraction-evaluate": 0.0})
    for width in (1200, 390):
        tab.open(run.folder / "report.html", width=width)
        assert tab.evaluate("document.querySelectorAll('figure svg').length") >= 4
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []
