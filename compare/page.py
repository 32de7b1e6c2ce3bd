"""The page of a comparison: one file, offline, with pictures that answer to the pointer."""

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from compare import charts
from compare.measures import GOAL_NAMES
from compare.table import COLUMNS, MARKS, Strategy
from server_app.report.style import CSS
from server_app.report.wording import plural, shorten

_HERE = Path(__file__).parent
SCRIPT = (_HERE / "page.js").read_text(encoding="utf-8")
STYLE = CSS + (_HERE / "page.css").read_text(encoding="utf-8")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
{body}
<script type="application/json" id="plots">{plots}</script>
<script>{script}</script>
</body>
</html>
"""

TITLES = {
    "rounds": "Accuracy by round",
    "bytes": "Accuracy against bytes",
    "work": "Accuracy against the clients' work",
}
CAPTIONS = {
    "rounds": """Mean over seeds. Look at the order at the right edge, and whether the bands (95 %
intervals, of those that stayed to the end) still overlap: then the order may be chance. A cross
is where a strategy was stopped for being behind.""",
    "bytes": """All that was sent down, up and for selecting, but not for testing on clients. The
line that is highest at what you can afford to send is the one to take: asking clients before
choosing shows as a line that lags behind.""",
    "work": """Processor time of all clients together on this machine, whatever they did with it.
Look for lines that reach the same height further left: the same accuracy for less battery.""",
}
GAPS_CAPTION = (
    "Each mark is the mean difference over seeds, run by run with the same seed; the line is its "
    "95 % interval. A line that touches zero means no difference that could not be chance. Who was "
    "stopped early is compared where it was stopped. With many strategies, one line in twenty "
    "misses zero by chance alone."
)
TABLE_NOTE = (
    "Click a title to sort. Accuracy is the mean of the last fifth of a strategy's evaluations, "
    "± one standard deviation over seeds; differences are in points against the best, with 95 % "
    "intervals ({marks}; no difference: less than two points either way). Evenness is Jain's index "
    "of how often clients were chosen in the first {rounds:.0f} rounds (1: all alike). Accuracy is "
    "{goal}; the other accuracy is {other}."
)


def render(document: Mapping[str, Any]) -> str:
    """Return the whole page of a comparison from its document."""
    plots = {
        axis: charts.curves(document, axis) for axis in CAPTIONS if any(document["curves"].values())
    }
    body = "\n".join(
        [
            _head(document),
            '<div class="charts">',
            *(_plot_figure(axis, plot) for axis, plot in plots.items()),
            _figure("Differences to the best", charts.gaps(document), GAPS_CAPTION),
            "</div>",
            "<h2>All numbers</h2>",
            _table(document),
            "<h2>How it was run</h2>",
            _how(document),
        ]
    )
    # "</" would end the script element that holds the data
    data = json.dumps({axis: plot.hover for axis, plot in plots.items()}).replace("</", "<\\/")
    return PAGE.format(
        policy=_policy(),
        title=escape(f"Comparison on {document['task']}"),
        css=STYLE,
        body=body,
        plots=data,
        script=SCRIPT,
    )


def _policy() -> str:
    """Allow this page's own script and style and nothing else from anywhere."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _head(document: Mapping[str, Any]) -> str:
    answer, *reasons = document["verdict"]
    lines = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    sub = (
        f"{plural(len(document['strategies']), 'strategy', 'strategies')}, "
        f"{plural(len(document['seeds']), 'seed')}, {document['budget']} each; judged by accuracy "
        f"{document['goal']}"
    )
    return (
        f"<h1>Which strategy for {escape(document['task'])}?</h1>\n"
        f'<p class="sub">{escape(sub)}</p>\n<p class="answer">{escape(answer)}</p>\n'
        f'<ul class="story">{lines}</ul>\n<h2>Pictures</h2>'
    )


def _plot_figure(axis: str, plot: charts.Plot) -> str:
    return (
        f'<figure><h3>{escape(TITLES[axis])}</h3><div class="plot" data-plot="{axis}">{plot.svg}'
        '<div class="ruler" hidden></div><pre class="tip" hidden></pre></div>'
        f"<figcaption>{escape(CAPTIONS[axis])}</figcaption></figure>"
    )


def _figure(title: str, svg: str, caption: str) -> str:
    if not svg:
        return ""
    return (
        f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(document: Mapping[str, Any]) -> str:
    titles = "".join(
        f'<th scope="col"><button>{escape(column.title)}</button></th>' for column in COLUMNS
    )
    rows = "\n".join(_row(strategy, document["best"]) for strategy in document["strategies"])
    marks = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items())
    goal = document["goal"]
    (other,) = (name for name in GOAL_NAMES.values() if name != goal)
    note = TABLE_NOTE.format(rounds=document["shared-rounds"], marks=marks, goal=goal, other=other)
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{titles}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="note">{escape(note)}</p>'
    )


def _row(strategy: Strategy, best: str) -> str:
    cells = []
    for column in COLUMNS:
        key = column.key(strategy)
        text = escape(shorten(column.say(strategy), 60))
        cells.append(f'<td data-key="{escape("" if key is None else str(key))}">{text}</td>')
    mark = ' class="best"' if strategy["name"] == best else ""
    return f"<tr{mark}>{''.join(cells)}</tr>"


def _how(document: Mapping[str, Any]) -> str:
    stages = "".join(
        f"<li>{escape(stage['budget'])}: {escape(', '.join(stage['strategies']))}</li>"
        for stage in document["stages"]
    )
    settings = "\n".join(f"{key} = {value!r}" for key, value in document["settings"].items())
    command = document["command"]
    return (
        f"<p>Trained up to, and who took part:</p><ul>{stages}</ul>"
        f"<pre><code>{escape(command)}</code></pre>"
        f"<details><summary>Settings that all share</summary>"
        f"<pre><code>{escape(settings)}</code></pre></details>"
    )
