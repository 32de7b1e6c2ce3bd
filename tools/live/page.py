"""The page that a browser loads once; what it shows comes later, piece by piece."""

import base64
import hashlib
from html import escape

from ..report.style import CSS
from .script import SCRIPT

_MORE_CSS = """
body { max-width: 110rem; }
header { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; align-items: baseline; }
#link { color: var(--third); font-size: .875rem; }
#link.lost { color: var(--bad); font-weight: 600; }
#choices { display: grid; gap: .15rem; max-height: 14rem; overflow: auto; padding: .5rem 0; }
#choices label { overflow-wrap: anywhere; padding: .2rem 0; }
#runs { display: grid; gap: 2rem; align-items: start; margin-top: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
#runs > section { min-width: 0; display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
#runs > section > div { min-width: 0; }
#runs > section > [data-part=head], #runs > section > [data-part=status],
#runs > section > [data-part=now], #runs > section > [data-part=faults],
#runs > section > [data-part=save] { grid-column: 1 / -1; }
#together { max-width: 32rem; margin-top: 1rem; }
#runs h2 { margin: 0; overflow-wrap: anywhere; }
#runs .sub { margin: .1rem 0 .5rem; }
progress { width: 100%; height: .6rem; accent-color: var(--first); }
[role=status] { font-weight: 600; overflow-wrap: anywhere; }
.now { display: grid; gap: .35rem 1.5rem; margin: 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
.now div { display: flex; gap: .75rem; min-width: 0; }
.now dt { color: var(--soft); flex: 0 0 8rem; }
.now dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.faults { margin: .25rem 0 0; padding-left: 1.1rem; font-size: .875rem; overflow-wrap: anywhere; }
.faults li { margin: .15rem 0; }
h3 { margin: 0; }
a { color: var(--first); }
:focus-visible { outline: 2px solid var(--first); outline-offset: 2px; }
"""

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
    return _PAGE.format(css=CSS + _MORE_CSS, folder=escape(folder), script=SCRIPT)


def policy() -> str:
    """Return what the page may do: run its own script, listen to its own server, no more."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
