"""What the page shows of a run, as pieces of HTML: whatever a client wrote is escaped here."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from threading import Lock

from ...core.log.events import CohortFailed, Exchanged, Quarantined, read_event
from ...core.tasks.metrics import label
from ..report.axes import HEIGHT, finish, line, metric_axis
from ..report.formatting import shorten
from ..report.history import History
from ..report.html_page import text
from ..report.page import chapters, render
from ..report.svg import SERIES, Axes, Plot, draw, figure
from ..report.watch import view
from .runs import FollowedRun

RECENT_FAULTS = 8
IDLE_SHARE = 4.0  # drawing takes at most a fifth of the time: the run needs the cores more
LONGEST_REST = 15.0  # seconds; on a machine that is that slow, it takes more

_drawing = Lock()  # matplotlib's settings are one for all threads


@dataclass
class Pictures:
    """The pictures of a run, or of several together, drawn again when there is something new."""

    # figures by name, in the report's order, as they were drawn last
    parts: dict[str, str] = field(default_factory=dict)
    drawn_at: float = 0.0  # when that was
    _version: int = -1
    _not_before: float = 0.0

    def due(self, runs: Sequence[FollowedRun]) -> bool:
        """Return whether there is something new, and drawing has rested long enough."""
        return _version(runs) != self._version and time.monotonic() >= self._not_before

    def draw(self, runs: Sequence[FollowedRun]) -> None:
        """Draw one run as its report does, or several in one picture."""
        begun, self._version = time.monotonic(), _version(runs)
        with _drawing:
            self.parts = _pictures(runs[0]) if len(runs) == 1 else _together(runs)
        self.drawn_at = time.monotonic()
        rest = min(IDLE_SHARE * (self.drawn_at - begun), LONGEST_REST)
        self._not_before = self.drawn_at + rest


def _version(runs: Sequence[FollowedRun]) -> int:
    return hash(tuple((run.name, run.version) for run in runs))


def _pictures(run: FollowedRun) -> dict[str, str]:
    history = run.history
    drawn = ((each, each.draw(history)) for _, some in chapters(history) for each in some)
    return {
        plot.name: figure(each.title, plot, each.words(history))
        for each, plot in drawn
        if plot is not None
    }


def _together(runs: Sequence[FollowedRun]) -> dict[str, str]:
    plot = overlay({run.name: run.history for run in runs})
    if plot is None:
        return {}
    caption = "Each line is a run, by its name."
    return {"overlay": figure("All runs shown", plot, caption)}


def whole_report(run: FollowedRun) -> str:
    """Return the report of a run as it stands."""
    with _drawing:
        history = run.history
        return render(run.name, history.started.config, history)


def head(run: FollowedRun) -> str:
    """Return name, what runs, how far it is."""
    most, done = max(1, run.history.rounds_wanted), run.history.rounds_done
    return (
        f"<h2>{text(run.history.started.strategy or 'A run is starting', 200)}</h2>"
        f'<p class="sub">{text(run.name, 100)}</p>'
        f'<progress max="{most}" value="{min(done, most)}" '
        f'aria-label="rounds done">{done}</progress>'
    )


def status(run: FollowedRun) -> str:
    """Return one sentence; screen readers read it out when it changes."""
    history = run.history
    parts = [f"Round {history.rounds_done} of {history.rounds_wanted or '?'}"]
    parts += view.scores(history)
    if history.finish is not None:
        parts.append(view.ending(history))
    return _unbroken(escape(", ".join(parts) + "."))


def now(run: FollowedRun) -> str:
    """Return who trains, who is late, bytes, time left."""
    quiet = run.tail.quiet_seconds()
    # Tens of seconds: the piece is sent again only when it says something else.
    lines = view.lines(run.history, 10 * (quiet // 10))
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{_unbroken(text(value, 400))}</dd></div>"
        for name, value in lines
    )
    return f'<dl class="now">{"".join(cells)}</dl>'


def _unbroken(html: str) -> str:
    """Keep a number and its per cent sign on one line."""
    return html.replace(" %", "&nbsp;%")


def faults(run: FollowedRun) -> str:
    """Return the last things that went wrong, the newest first; nothing if nothing did."""
    rows = []
    for event in reversed(run.events):
        rows += [f"<li>{row}</li>" for row in _fault(event, run.history)]
        if len(rows) >= RECENT_FAULTS:
            break
    if not rows:
        return ""
    return f"<h3>Faults, newest first</h3><ul class='faults'>{''.join(rows[:RECENT_FAULTS])}</ul>"


def _fault(line: Mapping[str, object], history: History) -> list[str]:
    event = read_event(line)
    at = "" if event is None else f"round {'?' if event.round is None else event.round}: "
    told: list[tuple[str, str]] = []
    match event:
        case CohortFailed():
            return [f"{at}a cohort failed: {text(event.reason, 200)}"]
        case Quarantined():
            told = [(event.client, f"set aside: {text(event.reason, 200)}")]
        case Exchanged():
            told = [(key, f"failed: {text(reason, 200)}") for key, reason in event.failed.items()]
            told += [(key, "was late") for key in event.late]
    return [f"{at}<b>{text(history.name_of(key), 40)}</b> {what}" for key, what in told]


def overlay(histories: Mapping[str, History]) -> Plot | None:
    """Draw the main metric of all runs that share the first's; None if there is none to draw."""
    if not histories:
        return None
    metric = next(iter(histories.values())).metric
    same = {name: each for name, each in histories.items() if each.metric.name == metric.name}
    column = f"clients-{metric.name}-mean"
    if not all(history.series(column)[0] for history in same.values()):
        column = metric.name
    known = {name: each for name, each in same.items() if each.series(column)[0]}
    if len(known) < 2:
        return None

    def paint(axes: Axes) -> None:
        for position, (name, history) in enumerate(known.items()):
            line(axes, history, column, shorten(name, 30), SERIES[position % len(SERIES)])
        metric_axis(axes, metric)
        where = "" if column == metric.name else ", clients' own data"
        finish(axes, f"{label(metric)}{where}")

    return draw("overlay", HEIGHT + 0.15 * len(known), paint)
