"""Where to read about the methods of a run."""

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

# Names of methods, on any axis, by the page that explains them
PAGES = {
    "cosage": ("cosage",),
    "gcfl": ("gcfl", "trusted"),
    "ode": ("ode", "ode-balanced"),
    "auxo": ("auxo", "split-test"),
    "ios": ("index-overlap", "centred-overlap", "signed-overlap"),
}
TITLES = {"cosage": "CosAge", "gcfl": "GCFL", "ode": "ODE", "auxo": "Auxo", "ios": "IOS"}
TITLES["forager"] = "Forager"  # a preset, not a method
_AXES = ("client-selector", "data-selector", "cohorts", "similarity")


def pages_of(config: Mapping[str, Any]) -> list[str]:
    """Return the pages about what a run used."""
    if config.get("strategy") == "forager":
        return ["forager"]
    used = {str(config.get(axis)) for axis in _AXES}
    return [page for page, names in PAGES.items() if used & set(names)]


def read_more(config: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return a line that leads to these pages: links, where the run is below a checkout."""
    found = pages_of(config)
    if not found:
        return ""
    where = ", ".join(_link(page, folder) for page in found)
    demos = ", ".join(f"forager demo {page}" for page in found)
    return f'<p class="note">How it works: {where}. Where it helps: {demos}.</p>'


def _link(page: str, folder: Path | None) -> str:
    """Return a link to the built page, else to its text; the name alone if neither is there."""
    for above in folder.resolve().parents if folder is not None else ():
        for name in (f"site/methods/{page}.html", f"docs/methods/{page}.md"):
            if (above / "docs" / "methods").is_dir() and (above / name).is_file():
                target = escape(os.path.relpath(above / name, folder))
                return f'<a href="{target}">{TITLES[page]}</a>'
    return f"docs/methods/{page}.md"
