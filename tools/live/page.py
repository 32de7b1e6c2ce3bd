"""The page that a browser loads once; what it shows comes later, piece by piece."""

import base64
import hashlib
from html import escape
from pathlib import Path

from ..report.style import CSS

_HERE = Path(__file__).parent
_SCRIPT = (_HERE / "page.js").read_text(encoding="utf-8")
_MORE_CSS = (_HERE / "page.css").read_text(encoding="utf-8")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>Forager, live</title>
<style>{css}</style>
</head>
<body>
<header><h1>Forager, live</h1><span id="link" role="status">connecting</span></header>
<details><summary>Choose runs (<span id="count">0</span> in {folder})</summary>
<fieldset id="choices" aria-label="runs to show"></fieldset></details>
<p id="empty" class="note">No run has started yet. This page shows it as soon as one does.</p>
<main><div id="together"></div><div id="runs"></div></main>
<script>{script}</script>
</body>
</html>
"""


def page(folder: str) -> str:
    """Return the page; `folder` is where its runs are, for people."""
    return _PAGE.format(css=CSS + _MORE_CSS, folder=escape(folder), script=_SCRIPT)


def policy() -> str:
    """Return what the page may do: run its own script, listen to its own server, no more."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
