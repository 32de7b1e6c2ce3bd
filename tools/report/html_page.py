"""What every page has in common: one file, nothing from outside, a script that it allows itself."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from .formatting import shorten
from .svg import Plot

_PARTS = dict(
    re.findall(
        r"^```(css|js)(.*?)^```",
        Path(__file__).with_name("page.md").read_text(encoding="utf-8"),
        re.S | re.M,
    )
)
CSS, SCRIPT = _PARTS["css"], _PARTS["js"]
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


def fold(summary: str, html: str) -> str:
    """Return what is shown after a click on its summary."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


def sentences(lines: Sequence[str], first: int = 3) -> str:
    """Return sentences, which are HTML already: the first ones, and the others folded."""
    shown, rest = (
        "".join(line if line.startswith("<li") else f"<li>{line}</li>" for line in part)
        for part in (lines[:first], lines[first:])
    )
    if len(lines) == first + 1:  # a fold takes as much room as a line
        shown, rest = shown + rest, ""
    more = fold("More details", f'<ul class="story">{rest}</ul>') if rest else ""
    return f'<ul class="story">{shown}</ul>{more}'


def page(title: str, body: str, plots: Iterable[Plot]) -> str:
    """Return a whole page."""
    hover = {plot.name: plot.hover for plot in plots if plot.hover}
    # "<" could end the script element that holds the data, or begin a comment in it
    data = json.dumps(hover, separators=(",", ":")).replace("<", "\\u003c")
    return PAGE.format(
        policy=_policy(),
        title=escape(shorten(title, 120)),
        css=CSS,
        body=body,
        plots=data,
        script=SCRIPT,
    )


def _policy() -> str:
    """Allow this page's own script and style, pictures that are in it, and nothing from outside."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    own = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return f"default-src 'none'; {own}"


def sortable_table(
    head: Iterable[str], rows: Iterable[tuple[str, Sequence[tuple[str, object]]]]
) -> str:
    """Return a sortable table; a row has a class and cells of HTML and sort key (None: last)."""
    titles = "".join(f'<th scope="col"><button>{escape(title)}</button></th>' for title in head)
    lines = []
    for mark, cells in rows:
        columns = (
            f'<td data-key="{escape("" if key is None else str(key))}">{cell}</td>'
            for cell, key in cells
        )
        opening = f'<tr class="{mark}">' if mark else "<tr>"
        lines.append(f"{opening}{''.join(columns)}</tr>\n")
    return (
        f'<div class="data"><div class="scroll"><table class="sortable"><thead><tr>{titles}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
        '<button class="copy" type="button">Copy as CSV</button></div>'
    )


def folded_table(
    summary: str, head: Iterable[str], rows: Iterable[Sequence[tuple[str, object]]], more: str = ""
) -> str:
    """Return a table that sorts, shown after a click on its summary, with HTML below it."""
    shown = sortable_table(head, [("", cells) for cells in rows])
    return fold(summary, f"{shown}{more}")


def text(words: str, length: int) -> str:
    """Return a stranger's text, made harmless and not too long."""
    return escape(shorten(words, length))


def left_out(count: int, what: str) -> str:
    """Return a note on the rows that a table does not show, if there are any."""
    return f'<p class="note">{count} more {what} are in events.jsonl.</p>' if count > 0 else ""
