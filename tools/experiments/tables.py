"""A table of texts, as Markdown or aligned plain text."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of texts; the first row is the header."""

    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table in Markdown, aligned so that its source is readable too."""
        rows = [[text.replace("|", "\\|") for text in row] for row in self.rows]
        widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        return "\n".join(f"| {_pad(row, widths, ' | ')} |" for row in rows)

    def text(self) -> str:
        """Return the table in plain, aligned text."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return "\n".join(_pad(row, widths, "  ").rstrip() for row in self.rows)


def _pad(row: Sequence[str], widths: Sequence[int], separator: str) -> str:
    return separator.join(text.ljust(width) for text, width in zip(row, widths, strict=True))
