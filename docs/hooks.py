"""What mkdocs does with these pages beside building them.

In a page, ``<!-- knobs: cosage summary -->`` becomes tables of settings, read from the run config;
``<!-- results: cosage -->`` a link to what was measured, or a word that nothing was yet;
``<!-- include: CONTRIBUTING.md -->`` the text of a file outside of this folder.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forager.tools.config_help import markdown
from mkdocs.plugins import event_priority

DOCS = Path(__file__).resolve().parent
_RELATIVE = re.compile(r"\[([^\]]+)\]\(([^)#:]+)(#[^)]*|)\)")
_MARK = re.compile(r"<!-- (knobs|results|include): ([^>]*?) -->")


@event_priority(100)  # before mkdocstrings looks for the packages
def on_config(config: Any) -> Any:
    """Add all results to the navigation; link the packages below one name, for the reference."""
    named = DOCS.parent / ".cache" / "api" / "forager"
    (named / "selectors").mkdir(parents=True, exist_ok=True)
    (named / "selectors" / "__init__.py").touch()
    shutil.copy(DOCS.parent / "forager" / "__init__.py", named)  # a link would be followed too far
    folders = ("core", "strategies", "client_app", "server_app")
    for path in (*(DOCS.parent / name for name in folders), *DOCS.parent.glob("selectors/[a-z]*")):
        link = named / path.relative_to(DOCS.parent)
        if not link.exists():
            link.symlink_to(path)
    files = sorted((DOCS / "results").glob("*.md"), key=lambda path: (path.stem != "README", path))
    config["nav"].append({"What was measured": [f"results/{path.name}" for path in files]})
    return config


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Replace the marks of one page."""
    return expand(text, page.file.src_uri.count("/"))


def expand(text: str, depth: int = 0) -> str:
    """Replace the marks in a text that is this many folders deep.

    >>> expand("<!-- results: nothing -->")
    'Not measured yet.'
    """
    fill: dict[str, Callable[[str], str]] = {
        "knobs": lambda names: markdown(names.split()),
        "results": lambda name: _results(name, depth),
        "include": lambda path: _body(DOCS.parent / path, depth),
    }
    return _MARK.sub(lambda mark: fill[mark[1]](mark[2]), text)


def _results(name: str, depth: int) -> str:
    if not (DOCS / "results" / f"{name}.md").exists():
        return "Not measured yet."
    return f"All numbers, with the commands: [{name}.md]({'../' * depth}results/{name}.md)."


def _body(path: Path, depth: int) -> str:
    """Return a file without its title, as part of another page; its links still lead somewhere."""

    def moved(link: re.Match[str]) -> str:
        target = (path.parent / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return f"[{link[1]}]({'../' * depth}{target.relative_to(DOCS).as_posix()}{link[3]})"
        return f"{link[1]} (`{target.relative_to(DOCS.parent).as_posix()}`)"

    _, _, body = path.read_text(encoding="utf-8").partition("\n")
    return _RELATIVE.sub(moved, body.strip())
