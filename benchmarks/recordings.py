"""Pictures of what a user sees: two commands in a terminal, a report, and the live page.

``python -m forager.benchmarks.recordings`` runs the commands and writes ``run.svg``,
``compare.svg``, ``report.png`` and ``live.png`` to ``docs/pictures/``. The last two need Chromium.
"""

import base64
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .chromium import Tab, chromium

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
RUN = "strategy='cosage' run-name='first' partition='pathological' split.classes-per-client=1"
RECORDED = {
    "run": ["run", "--local", "-c", RUN],
    "compare": ["compare", "fedavg", "cosage", "--budget", "20 rounds", "--seeds", "3"],
}
_GROUPS = (
    "groups.kind='label-permutation' groups.count=2 partition='iid' fraction-evaluate=1.0 "
    "data.client-test-share=0.2 num-clients=20 clients-per-round=20 num-server-rounds=40"
)
SIDE_BY_SIDE = {  # on the live page
    "one-model": "strategy='fedavg'",
    "forager": "strategy='forager'",
}
_WIDEST = 118  # columns
_REPORT = {"x": 0, "y": 0, "width": 1000, "height": 952, "scale": 1}
_LIVE = {"x": 0, "y": 0, "width": 1200, "height": 712, "scale": 1}
_COLOURS = 64  # of a page's picture: a fifth of its bytes, and no difference to be seen


def typed(arguments: list[str]) -> str:
    """Return what a user types.

    >>> print(typed(["run", "-c", "seed=1 strategy='ios'"]))
    $ forager run -c "seed=1 strategy='ios'"
    """
    return " ".join(["$ forager", *(f'"{a}"' if " " in a else a for a in arguments)])


def output_of(arguments: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it prints, in the order in which it does."""
    with _begun(arguments, folder) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def _begun(arguments: list[str], folder: Path) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,  # as if it were activated: then the command is `forager`
        "COLUMNS": str(_WIDEST),
    }
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "forager.tools.cli", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def terminal(title: str, command: str, output: str) -> str:
    """Return a terminal with a command and its output, as SVG that needs nothing from the network.

    >>> svg = terminal("forager", "$ forager --version", "forager 1.0")
    >>> svg.startswith("<svg"), "font-face" in svg, "http://www.w3.org" in svg
    (True, False, True)
    """
    from rich.console import Console
    from rich.text import Text

    lines = [command, *output.rstrip().splitlines()]
    width = min(_WIDEST, max(map(len, lines)) + 1)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text(lines[0], style="bold"))
    console.print(Text("\n".join(lines[1:])), soft_wrap=False)
    svg = console.export_svg(title=title, unique_id=f"terminal-{title.replace(' ', '-')}")
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace").strip() + "\n"


def picture_of_report(report: Path, path: Path) -> None:
    """Save the beginning of a report as a small picture."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as tab:
        tab.open(report, width=int(_REPORT["width"]))
        _save(tab, _REPORT, path)


def picture_of_live_page(folder: Path, path: Path) -> None:
    """Do two runs; save what the live page shows of them, side by side."""
    for name, keys in SIDE_BY_SIDE.items():
        config = f"{_GROUPS} {keys} run-name='{name}' output-dir='runs'"
        output_of(["run", "--local", "-c", config], folder)
    with _begun(["watch", "--web", *(f"runs/{name}" for name in SIDE_BY_SIDE)], folder) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        try:
            with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as tab:
                size = {"width": _LIVE["width"], "height": _LIVE["height"]}
                tab.call(
                    "Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False
                )
                tab.call("Page.navigate", url=address)
                deadline = time.monotonic() + 120
                while tab.evaluate("document.querySelectorAll('#together svg').length") != 1:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
                _save(tab, _LIVE, path)
        finally:
            server.terminate()


def _save(tab: Tab, clip: dict[str, int], path: Path) -> None:
    from PIL import Image

    shot = tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    assert not tab.complaints, tab.complaints
    image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, arguments in RECORDED.items():
            print(typed(arguments), flush=True)
            output = output_of(arguments, folder)
            (PICTURES / f"{title}.svg").write_text(
                terminal(f"forager {title}", typed(arguments), output), encoding="utf-8"
            )
        picture_of_report(folder / "runs" / "first" / "report.html", PICTURES / "report.png")
        picture_of_live_page(folder, PICTURES / "live.png")


if __name__ == "__main__":
    main()
