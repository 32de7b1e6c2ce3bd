"""Tables of a page; their cells are HTML already."""

from collections.abc import Iterable, Sequence
from html import escape

from .formatting import shorten


def sortable_table(
    head: Iterable[str], rows: Iterable[tuple[str, Sequence[tuple[str, object]]]]
) -> str:
    """Return a table that sorts by a click on a title, and that can be copied as CSV.

    A row has a class and cells: HTML, and what it sorts by (None: unknown, last).
    """
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
    marked = [("", cells) for cells in rows]
    return f"<details><summary>{summary}</summary>{sortable_table(head, marked)}{more}</details>"


def text(words: str, length: int) -> str:
    """Return a stranger's text, made harmless and not too long."""
    return escape(shorten(words, length))
