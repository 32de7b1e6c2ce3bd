"""The page that a browser loads once; what it shows comes later, piece by piece."""

import base64
import hashlib
from html import escape
from pathlib import Path

from ..report.style import CSS

_HERE = Path(__file__).parent
_SCRIPT = (_HERE / "page.js").read_text(encoding="utf-8")
_MORE_CSS = (_HERE / "page.css").read_text(encoding="utf-8")
_PAGE = (_HERE / "page.html").read_text(encoding="utf-8")


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
