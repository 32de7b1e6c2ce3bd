"""Chromium without a window, driven by its DevTools protocol."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Tab:
    """One page in the browser.

    Attributes
    ----------
    complaints : list of str
        What the browser had to say: errors of scripts, refused or failed requests, ...
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._sent = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(timeout=60))
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        method, detail = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(detail["exceptionDetails"]))
        elif method == "Log.entryAdded" or method == "Network.loadingFailed":
            self.complaints.append(str(detail))
        elif method == "Runtime.consoleAPICalled" and detail["type"] in ("error", "warning"):
            self.complaints.append(str(detail["args"]))

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> float:
        """Open a file and return how many seconds the browser took to load it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 60
        while self.evaluate("document.readyState") != "complete":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        loaded = "performance.getEntriesByType('navigation')[0].domComplete / 1000"
        return float(self.evaluate(loaded))

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def point(self, selector: str, x: float, y: float, *, click: bool = False) -> None:
        """Move the pointer to a place of an element, in shares of its size; and click."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]; })()"
        )
        place = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """Start the browser with an empty profile and give its only tab."""
    found = [path for path in map(shutil.which, NAMES) if path]
    assert found, f"none of {', '.join(NAMES)} is installed"
    command = [found[0], *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    browser = subprocess.Popen(
        [*command, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port = _wait_for(profile / "DevToolsActivePort").split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        with connect(pages[0]["webSocketDebuggerUrl"], max_size=None) as connection:
            yield Tab(connection)
    finally:
        browser.terminate()
        browser.wait(10)


def _wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, "the browser did not start"
        time.sleep(0.05)
    return path.read_text()
