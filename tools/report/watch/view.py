"""A run as it goes, on the terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ....core.log.events import Exchanged
from ....core.tasks.metrics import label, written
from ..formatting import data_size, duration, shorten
from ..history import History
from ..story import other_data, whose

MOST_NAMES = 8
_LONGEST_NAME = 16  # leaves room for the rest of the line
NO_NEWS = 60.0  # seconds after which silence is worth a note
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


def panel(history: History, folder: str, quiet_seconds: float) -> RenderableType:
    """Return the whole view."""
    table = Table.grid(padding=(0, 2))
    total, done = max(1, history.rounds_wanted), history.rounds_done
    table.add_row("", ProgressBar(total=total, completed=done, width=_WIDTH))
    for name, value in lines(history, quiet_seconds, course=True):
        table.add_row(Text(name, style="dim"), Text(value))
    title = Text(shorten(f"{history.started.strategy or 'run'}, {folder}", 100))
    return Panel(table, title=title, title_align="left")


def lines(history: History, quiet_seconds: float, *, course: bool = False) -> list[tuple[str, str]]:
    """Return pairs of name and text; `course` draws the metric in letters."""
    metric, scores = history.metric, history.series(history.score_column)[1]
    now = f"{written(metric, scores[-1])} {whose(history)}" if scores else "not yet"
    best = f"best {written(metric, metric.best(scores))}" if scores else ""
    if scores and course:
        best += f"  {sparkline(scores)}"
    pace, left = history.seconds_a_round(), history.seconds_left()
    lines = [
        ("round", f"{history.rounds_done} of {history.rounds_wanted or '?'}"),
        (label(metric), f"{now}{'  ' if course else ', ' if best else ''}{best}".strip()),
        *other_data(history),
        ("training now", _training(history, quiet_seconds)),
        ("slowest last", _slowest(history)),
        ("late so far", _counts(history.faults("late")) or "nobody"),
        ("failed", _counts(history.faults("failed"))),
        ("set aside", _counts(history.faults("quarantined"))),
        ("bytes", traffic(history)),
        ("time per round", _pace(pace) if pace is not None else ""),
    ]
    if history.finish is None:
        known = f"about {duration(left)}" if left is not None else "not known yet"
        lines.append(("time left", known))
    if quiet_seconds > NO_NEWS and history.finish is None:
        lines.append(("no news for", f"{duration(quiet_seconds)}: slow, or killed"))
    return [(name, value) for name, value in lines if value]


def line(history: History) -> str:
    """Return one line for a terminal that cannot be redrawn, or a file."""
    parts = [f"round {history.rounds_done}/{history.rounds_wanted or '?'}"]
    parts += scores(history)[:1]
    parts.append(traffic(history))
    for fate in ("late", "failed"):
        counts = _counts(history.faults(fate))
        parts += [f"{fate}: {counts}"] if counts else []
    left = history.seconds_left()
    if left and history.finish is None:
        parts.append(f"about {duration(left)} left")
    return "  ".join(parts)


def ending(history: History) -> str:
    """Say how the run ended."""
    end = history.finish
    reason, message = (end.reason, end.message) if end else ("", "")
    text = f"{reason or 'ended'} after {history.rounds_done} rounds"
    return f"{text}: {shorten(message, 300)}" if message else text


def traffic(history: History) -> str:
    """Write the bytes so far."""
    down, up, selecting = (history.total(f"bytes-{part}") for part in ("down", "up", "select"))
    text = f"{data_size(down)} down, {data_size(up)} up"
    return f"{text}, {data_size(selecting)} selecting" if selecting else text


def sparkline(values: Sequence[float]) -> str:
    """Draw the course of some values in one line."""
    shown = list(values)[-_WIDTH:]
    low, high = min(shown), max(shown)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(steps * (v - low) / ((high - low) or 1.0) + 1e-9)] for v in shown)


def scores(history: History) -> list[str]:
    """Write the main metric, first where it counts, then on the other data if known."""
    values = history.series(history.score_column)[1]
    if not values:
        return []
    first = f"{label(history.metric)} {written(history.metric, values[-1])} {whose(history)}"
    rest = [f"{value} {name}" for name, value in other_data(history) if name.startswith("on ")]
    return [first, *rest]


def _training(history: History, quiet_seconds: float) -> str:
    if not history.training:
        last = max(history.chosen, default=0)
        doing = "aggregating and testing" if last > history.rounds_done else "choosing clients"
        return "" if history.finish is not None else f"nobody: {doing}"
    names = [history.name_of(key) for key in history.training]
    text = f"{len(names)}: {_names(names)}"
    if history.overdue(quiet_seconds):
        text += f"  (for {duration(quiet_seconds)}, longer than usual: some may be late)"
    return text


def _slowest(history: History) -> str:
    """Name the slowest of the last training with their times."""
    last = list(history.noted(Exchanged).values())[-1:]
    seconds = last[0][-1].reply_seconds if last else None
    return _names(
        [
            f"{shorten(history.name_of(key), _LONGEST_NAME)} ({_pace(value)})"
            for key, value in (seconds.slowest.items() if seconds else ())
        ]
    )


def _counts(counts: Counter[str]) -> str:
    return _names(
        [f"{shorten(key, _LONGEST_NAME)} ({count}x)" for key, count in counts.most_common()]
    )


def _pace(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 24) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
