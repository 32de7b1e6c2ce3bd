"""A run's state on the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ....core.tasks.metric_text import label, written
from ..formatting import data_size, duration, shorten
from .state import RunState

MOST_NAMES = 8
_LONGEST_NAME = 16  # so that what is said of it is not cut off
NO_NEWS = 60.0  # seconds after which silence is worth a note
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


def panel(state: RunState, folder: str, quiet_seconds: float) -> RenderableType:
    """Return the whole view."""
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(1, state.total), completed=state.done, width=_WIDTH)
    table.add_row("", bar)
    for name, value in lines(state, quiet_seconds, course=True):
        table.add_row(Text(name, style="dim"), Text(value))
    title = Text(shorten(f"{state.title or 'run'}, {folder}", 100))
    return Panel(table, title=title, title_align="left")


def lines(state: RunState, quiet_seconds: float, *, course: bool = False) -> list[tuple[str, str]]:
    """Return what there is to say, as pairs of a name and a text.

    Parameters
    ----------
    state : RunState
        The run.
    quiet_seconds : float
        How long ago its log was written to.
    course : bool (default: False)
        Whether to draw the course of the metric in letters.
    """
    metric, scores = state.metric, state.headline
    now = written(metric, scores[-1]) if scores else "not yet"
    best = f"best {written(metric, metric.best(scores))}" if scores else ""
    if scores and course:
        best += f"  {sparkline(scores)}"
    pace, left = state.seconds_a_round(), state.seconds_left()
    lines = [
        ("round", f"{state.done} of {state.total or '?'}"),
        (label(metric), f"{now}{'  ' if course else ', ' if best else ''}{best}".strip()),
        *_other_data(state),
        ("also", ", ".join(f"{label(m)} {written(m, value)}" for m, value in state.also.items())),
        ("training now", _training(state, quiet_seconds)),
        ("slowest last", _slowest(state.slowest)),
        ("late so far", _counts(state.late) or "nobody"),
        ("failed", _counts(state.failed)),
        ("set aside", _counts(state.quarantined)),
        ("bytes", traffic(state)),
        ("time per round", _pace(pace) if pace is not None else ""),
    ]
    if state.finish is None:
        known = f"about {duration(left)}" if left is not None else "not known yet"
        lines.append(("time left", known))
    if quiet_seconds > NO_NEWS and state.finish is None:
        lines.append(("no news for", f"{duration(quiet_seconds)}: slow, or killed"))
    return [(name, value) for name, value in lines if value]


def line(state: RunState) -> str:
    """Return one line for a terminal that cannot be redrawn, or a file.

    >>> line(RunState(total=10, done=3, scores=[0.5], traffic=Counter(down=2000)))
    'round 3/10  accuracy 50.0 %  2.00 kB down, 0 B up'
    """
    parts = [f"round {state.done}/{state.total or '?'}"]
    parts += scores(state)[:1]
    parts.append(traffic(state))
    for name, counts in (("late", state.late), ("failed", state.failed)):
        if counts:
            parts.append(f"{name}: {_counts(counts)}")
    left = state.seconds_left()
    if left and state.finish is None:
        parts.append(f"about {duration(left)} left")
    return "  ".join(parts)


def ending(state: RunState) -> str:
    """Say how the run ended."""
    reason, message = (state.finish.reason, state.finish.message) if state.finish else ("", "")
    text = f"{reason or 'ended'} after {state.done} rounds"
    return f"{text}: {shorten(message, 300)}" if message else text


def traffic(state: RunState) -> str:
    """Write the bytes so far."""
    sent = state.traffic
    text = f"{data_size(sent['down'])} down, {data_size(sent['up'])} up"
    return f"{text}, {data_size(sent['selecting'])} selecting" if sent["selecting"] else text


def sparkline(values: Sequence[float]) -> str:
    """Draw the course of some values in one line.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    shown = list(values)[-_WIDTH:]
    low, high = min(shown), max(shown)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(steps * (v - low) / ((high - low) or 1.0) + 1e-9)] for v in shown)


def scores(state: RunState) -> list[str]:
    """Write the main metric, first where it counts, then on the other data if known.

    >>> scores(RunState(scores=[0.4], own=[0.9]))
    ['accuracy 40.0 %', "on clients' own data 90.0 %"]
    >>> scores(RunState(scores=[0.4], own=[0.9], own_models=True))
    ["accuracy on clients' own data 90.0 %", "on the server's test data 40.0 %"]
    """
    known = [("on the server's test data", state.scores), ("on clients' own data", state.own)]
    known.sort(key=lambda pair: pair[1] is not state.headline)
    found = [f"{where} {written(state.metric, values[-1])}" for where, values in known if values]
    if not found:
        return []
    first = found[0].removeprefix("on the server's test data ")
    return [f"{label(state.metric)} {first}", *found[1:]]


def _other_data(state: RunState) -> list[tuple[str, str]]:
    """Say what the headline is judged on, and how it is on the other data.

    >>> _other_data(RunState(own=[0.9], worst=0.7, scores=[0.5])), _other_data(RunState())
    ([('on own data', '90.0 %, worst tenth 70.0 %')], [])
    >>> _other_data(RunState(own=[0.9], scores=[0.5], own_models=True))
    [('judged on', "the clients' own data"), ("on server's test", '50.0 %')]
    """
    metric = state.metric
    least = [] if state.worst is None else [f"worst tenth {written(metric, state.worst)}"]
    if state.own and state.headline is state.own:
        server = [("on server's test", written(metric, state.scores[-1]))] if state.scores else []
        return [("judged on", ", ".join(["the clients' own data", *least])), *server]
    own = [written(metric, state.own[-1])] if state.own else []
    return [("on own data", ", ".join([*own, *least]))] if own or least else []


def _training(state: RunState, quiet_seconds: float) -> str:
    if not state.training:
        doing = "aggregating and testing" if state.round > state.done else "choosing clients"
        return "" if state.finish is not None else f"nobody: {doing}"
    text = f"{len(state.training)}: {_names(state.training)}"
    if state.overdue(quiet_seconds):
        text += f"  (for {duration(quiet_seconds)}, longer than usual: some may be late)"
    return text


def _slowest(seconds: Mapping[str, float]) -> str:
    """Name the slowest with their times.

    >>> _slowest({"camera-7": 3.21, "camera-1": 0.5})
    'camera-7 (3.2 s), camera-1 (500 ms)'
    """
    return _names(
        [f"{shorten(key, _LONGEST_NAME)} ({_pace(value)})" for key, value in seconds.items()]
    )


def _counts(counts: Counter[str]) -> str:
    return _names(
        [
            f"{shorten(key, _LONGEST_NAME)} ({count})" if count > 1 else key
            for key, count in counts.most_common()
        ]
    )


def _pace(seconds: float) -> str:
    """Write how long a round takes.

    >>> _pace(0.0123), _pace(4.2)
    ('12 ms', '4.2 s')
    """
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 24) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
