"""The comparison as a table: for the terminal, and the columns that the page shares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....core.tasks.metric_text import label, written
from ....core.tasks.metrics import Metric
from ...report.formatting import data_size
from ..tables import Table
from .document import metric_of
from .measures import GOAL_NAMES
from .verdict import BETTER, EQUAL, FEW_SEEDS, OPEN, WORSE, signed

Strategy = Mapping[str, Any]
MARKS = {BETTER: "▲", EQUAL: "=", OPEN: "?", WORSE: "▼"}


@dataclass(frozen=True)
class Column:
    """One column: what it says and by what it sorts (None: unknown)."""

    title: str
    say: Callable[[Strategy], str]
    key: Callable[[Strategy], float | str | None]


def _score(name: str, metric: Metric) -> Callable[[Strategy], str]:
    def say(strategy: Strategy) -> str:
        found = strategy[name]
        if found["mean"] is None:
            return "-"
        text = written(metric, found["mean"])
        if found["std"] is None:
            return text
        return (
            f"{text} ± {100 * found['std']:.1f}" if metric.share else f"{text} ± {found['std']:.2g}"
        )

    return say


def _bounded(gap: float, metric: Metric) -> float:
    """Return a limit of an interval; shares cannot differ by more than 1, few seeds or not."""
    return max(-1.0, min(1.0, gap)) if metric.share else gap


def _gap(axis: str, metric: Metric) -> Column:
    """Return a column of differences to the best, with the interval."""

    def say(strategy: Strategy) -> str:
        gap = strategy["against"].get(axis)
        if gap is None:
            return "best"
        if gap["mean"] is None:
            return "-"
        text = signed(metric, gap["mean"])
        if gap["low"] is None:
            return text
        if gap["count"] < FEW_SEEDS:  # the interval of fewer says nothing
            return f"{text} {MARKS[gap['verdict']]}"
        text += f" [{signed(metric, _bounded(gap['low'], metric))}, "
        text += f"{signed(metric, _bounded(gap['high'], metric))}]"
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


def _written(title: str, write: Callable[[float], str], *path: str) -> Column:
    """Return a column of the numbers at a path of each strategy."""
    find = _mean(*path)

    def say(strategy: Strategy) -> str:
        value = find(strategy)
        return "-" if value is None else write(value)

    return Column(title, say, find)


def columns(document: Mapping[str, Any]) -> list[Column]:
    """Return the columns of a comparison's table, in the words of its metric."""
    metric = metric_of(document)
    name = label(metric)
    (other,) = (words for words in GOAL_NAMES.values() if words != document["goal"])
    return [
        Column("strategy", lambda s: str(s["name"]), lambda s: str(s["name"])),
        _written("rounds", "{:.0f}".format, "rounds"),
        Column(name, _score("score", metric), _mean("score", "mean")),
        _gap("rounds", metric),
        _gap("bytes", metric),
        _gap("work", metric),
        Column(f"{name} {other}", _score("other", metric), _mean("other", "mean")),
        Column("worst 10 %", _score("worst", metric), _mean("worst", "mean")),
        _written("evenness", "{:.2f}".format, "evenness", "mean"),
        _written("bytes", data_size, "costs", "bytes", "mean"),
        _written("work, s", "{:.2f}".format, "costs", "work", "mean"),
        _written("selecting, per round", data_size, "selecting", "bytes-a-round"),
    ]


def text_table(document: Mapping[str, Any]) -> str:
    """Return the table in plain, aligned text, as far as it fits a terminal; the page has all."""
    metric = metric_of(document)
    wanted = ("strategy", "rounds", label(metric), "at equal rounds", "worst 10 %", "bytes")
    shown = [column for column in columns(document) if column.title in wanted]
    titles = [column.title for column in shown]
    rows = [[column.say(s) for column in shown] for s in document["strategies"]]
    legend = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items())
    sets = [f"  {s['name']}: {s['sets']}" for s in document["strategies"] if s["sets"]]
    told = "\nwhat they set beside fedavg:\n" + "\n".join(sets) if sets else ""
    spread = "\n± is one standard deviation over seeds" if len(document["seeds"]) > 1 else ""
    return f"{Table([titles, *rows]).text()}\nagainst the best: {legend}{spread}{told}\n"
