"""The comparison as a table: for the terminal, and the columns that the page shares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...report.formatting import data_size
from ..tables import Table
from .verdict import BETTER, EQUAL, OPEN, WORSE

Strategy = Mapping[str, Any]
MARKS = {BETTER: "▲", EQUAL: "=", OPEN: "?", WORSE: "▼"}


@dataclass(frozen=True)
class Column:
    """One column: what it says and by what it sorts (None: unknown)."""

    title: str
    say: Callable[[Strategy], str]
    key: Callable[[Strategy], float | str | None]


def _share(name: str) -> Callable[[Strategy], str]:
    def say(strategy: Strategy) -> str:
        found = strategy[name]
        if found["mean"] is None:
            return "-"
        text = f"{100 * found['mean']:.1f} %"
        return text if found["std"] is None else f"{text} ± {100 * found['std']:.1f}"

    return say


def _gap(axis: str) -> Column:
    """Return a column of differences to the best, in points, with the interval."""

    def say(strategy: Strategy) -> str:
        gap = strategy["against"].get(axis)
        if gap is None:
            return "best"
        if gap["mean"] is None:
            return "-"
        text = f"{100 * gap['mean']:+.1f}"
        if gap["low"] is None:
            return text
        text += f" [{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}]"
        return f"{text} {MARKS[gap['verdict']]}"

    def key(strategy: Strategy) -> float | None:
        gap = strategy["against"].get(axis)
        return 0.0 if gap is None else gap["mean"]

    return Column(f"at equal {axis}", say, key)


def _mean(*path: str) -> Callable[[Strategy], Any]:
    def key(strategy: Strategy) -> Any:
        found: Any = strategy
        for name in path:
            found = found[name]
        return found

    return key


def _size(strategy: Strategy) -> str:
    size = strategy["costs"]["bytes"]["mean"]
    return "-" if size is None else data_size(size)


def _number(format_text: str, *path: str) -> Callable[[Strategy], str]:
    def say(strategy: Strategy) -> str:
        value = _mean(*path)(strategy)
        return "-" if value is None else format(value, format_text)

    return say


def _selecting(strategy: Strategy) -> str:
    size = strategy["selecting"]["bytes-a-round"]
    return "-" if size is None else data_size(size)


COLUMNS = [
    Column("strategy", lambda s: str(s["name"]), lambda s: str(s["name"])),
    Column("rounds", _number(".0f", "rounds"), _mean("rounds")),
    Column("accuracy", _share("accuracy"), _mean("accuracy", "mean")),
    _gap("rounds"),
    _gap("bytes"),
    _gap("work"),
    Column("other accuracy", _share("other"), _mean("other", "mean")),
    Column("worst 10 %", _share("worst"), _mean("worst", "mean")),
    Column("evenness", _number(".2f", "evenness", "mean"), _mean("evenness", "mean")),
    Column("bytes", _size, _mean("costs", "bytes", "mean")),
    Column("work, s", _number(".2f", "costs", "work", "mean"), _mean("costs", "work", "mean")),
    Column("selecting, a round", _selecting, _mean("selecting", "bytes-a-round")),
]


def text_table(document: Mapping[str, Any]) -> str:
    """Return the table in plain, aligned text."""
    titles = [column.title for column in COLUMNS]
    rows = [[column.say(s) for column in COLUMNS] for s in document["strategies"]]
    legend = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items())
    return f"{Table([titles, *rows]).text()}\nagainst the best: {legend}\n"
