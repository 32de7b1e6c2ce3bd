"""The live page and the docs' search in a real browser."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from forager.benchmarks.chromium import Tab, chromium
from forager.benchmarks.report_size import write_run
from forager.tools.live.runs import Runs
from forager.tools.live.server import application
from mkdocs.commands.build import build
from mkdocs.config import load_config

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "tools" / "live"))

from test_live_server import HOSTILE, TOKEN, begin, play, write

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@contextmanager
def serving(output: Path, port: int = 0) -> Iterator[int]:
    """Serve the page; give its port."""
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.bind(("127.0.0.1", port))
    end.listen()
    server: uvicorn.Server
    app = application(Runs(output), TOKEN, 0.1, lambda: server.should_exit)
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([end],))
    thread.start()
    try:
        yield end.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


def look(tab: Tab, port: int, width: int = 1200, *, dark: bool = False, query: str = "") -> None:
    leave(tab)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", features=[scheme])
    tab.call("Page.navigate", url=f"http://127.0.0.1:{port}/{TOKEN}/{query}")


def leave(tab: Tab) -> None:
    """Close the page before, which tries to reach its server for ever."""
    tab.call("Page.navigate", url="about:blank")
    wait(lambda: tab.evaluate("location.href") == "about:blank")
    tab.complaints.clear()


def errors(tab: Tab) -> list[str]:
    """Return what the browser complained of, except for connections that the page closed itself."""
    return [text for text in tab.complaints if "'canceled': True" not in text]


def wait(holds: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def text(tab: Tab, selector: str) -> str:
    found = f"document.querySelector({json.dumps(selector)})"
    return str(tab.evaluate(f"{found} ? {found}.textContent : ''"))


def test_it_grows_with_the_run_and_finds_the_server_again(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path / "one", begin(), *play(1))
    with serving(tmp_path) as port:
        look(tab, port)
        wait(lambda: "Round 1 of 4" in text(tab, "[data-part=status]"))
        wait(lambda: tab.evaluate("document.querySelectorAll('figure svg').length") > 2)
        write(tmp_path / "one", *play(2))
        wait(lambda: "Round 2 of 4" in text(tab, "[data-part=status]"))
        assert text(tab, "#link") == "live"
        assert errors(tab) == []
    wait(lambda: "not connected" in text(tab, "#link"))
    write(tmp_path / "one", *play(3))
    with serving(tmp_path, port):
        wait(lambda: "Round 3 of 4" in text(tab, "[data-part=status]"))
        assert text(tab, "#link") == "live"


def test_runs_are_chosen_by_keyboard_and_stand_side_by_side(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path / "one", begin(), *play(1), *play(2))
    write(tmp_path / "two", begin("ode on digits"), *play(1), *play(2))
    with serving(tmp_path) as port:
        look(tab, port, query="?run=one")
        wait(lambda: tab.evaluate("document.querySelectorAll('#runs > section').length") == 1)
        tab.evaluate("document.querySelector('details').open = true")
        wait(lambda: tab.evaluate("document.querySelectorAll('#choices input').length") == 2)
        tab.evaluate("document.querySelector('#choices input[value=two]').focus()")
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ")
        wait(lambda: tab.evaluate("document.querySelectorAll('#runs > section').length") == 2)
        wait(lambda: tab.evaluate("document.querySelectorAll('#together svg').length") == 1)
        labels = "[...document.querySelectorAll('#runs > section')].map(s => s.ariaLabel)"
        assert sorted(tab.evaluate(labels)) == ["one", "two"]
        roles = tab.evaluate("document.querySelectorAll('[role=status]').length")
        assert roles >= 3  # the connection, and each run
        assert errors(tab) == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_it_fits_the_screen(tab: Tab, tmp_path: Path, width: int, dark: bool) -> None:
    write_run(tmp_path, clients=12, rounds=10)
    with serving(tmp_path) as port:
        look(tab, port, width, dark=dark)
        wait(lambda: tab.evaluate("document.querySelectorAll('figure svg').length") > 10)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
        assert errors(tab) == []


def test_a_hostile_name_stays_text(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path / "bad", begin(HOSTILE), *play(1, HOSTILE), *play(2, HOSTILE))
    with serving(tmp_path) as port:
        look(tab, port)
        wait(lambda: "onerror" in text(tab, "[data-part=faults]"))
        wait(lambda: tab.evaluate("document.querySelectorAll('figure svg').length") > 2)
        assert tab.evaluate("document.querySelectorAll('#runs img').length") == 0
        assert errors(tab) == []


def test_the_docs_can_be_searched_from_the_disk(tab: Tab, tmp_path: Path) -> None:
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    leave(tab)
    tab.open(tmp_path / "index.html")
    tab.point(".md-search__input", 0.5, 0.5, click=True)
    wait(lambda: "Type to start" in text(tab, ".md-search-result__meta"))
    tab.call("Input.insertText", text="quarantin")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="e", text="e")
    wait(lambda: "matching" in text(tab, ".md-search-result__meta"))
    assert errors(tab) == []
