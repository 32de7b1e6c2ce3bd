"""The page of a comparison: one file, offline, with pictures that answer to the pointer."""

from html import escape

from ....core.tasks.metrics import label, title
from ...report.formatting import plural, shorten
from ...report.html_page import page, sentences, sortable_table
from ...report.svg import figure
from ..measures import GOAL_NAMES
from . import charts
from .schema import Document
from .table import MARKS, columns

TITLES = {
    "rounds": "{name} by round",
    "bytes": "{name} against bytes",
    "work": "{name} against the clients' work",
}
CAPTIONS = {
    "rounds": """Mean over seeds. Look at the order at the right edge.{bands}{crosses}""",
    "bytes": """All bytes sent down, up and for selecting, but not for testing on clients. Take
the line that is {best} at the bytes that you can afford. Questions before choosing move a line to
the right.""",
    "work": """Processor time of all clients together on this machine, for training and for answers.
A line further left reaches the same height with less battery.""",
}
BANDS = (
    " Where the bands (95 % intervals, of those that stayed to the end) overlap, the order may be "
    "chance."
)
CROSSES = " A cross marks where a strategy was stopped because it was behind."
GAPS_CAPTION = (
    "Each mark is the mean difference over seeds, run by run with the same seed; the line is its "
    "95 % interval. A line that touches zero means that the difference may be chance. A strategy "
    "that was stopped early is compared where it was stopped. With many strategies, one line in "
    "twenty misses zero by chance alone. Intervals of two seeds are too wide to decide anything."
)
TABLE_NOTE = (
    "Click a title to sort. {name} is the mean of the last fifth of a strategy's evaluations, "
    "± one standard deviation over seeds, and {better} is better; differences are {unit}against "
    "the best, with 95 % intervals ({marks}; no difference: less than {margin} either way). "
    "Evenness is Jain's index of how often clients were chosen in the first {rounds:.0f} rounds "
    "(1: all alike). Unless a title says otherwise, all values are {goal}."
)


def render(document: Document) -> str:
    """Return the whole page of a comparison from its document."""
    metric = document.judged_by
    words = {
        "name": title(metric),
        "best": "highest" if metric.higher_is_better else "lowest",
        "bands": BANDS if len(document.seeds) >= charts.SEEDS_OF_A_BAND else "",
        "crosses": "" if all(s.to_the_end for s in document.strategies) else CROSSES,
    }
    pictures = [
        (heading.format(**words), charts.curves(document, axis), CAPTIONS[axis].format(**words))
        for axis, heading in (TITLES if document.curves else {}).items()
    ]
    gaps = charts.gaps(document)
    if gaps is not None:
        pictures.append(("Differences from the best", gaps, GAPS_CAPTION))
    figures = (figure(heading, plot, escape(caption)) for heading, plot, caption in pictures)
    answer, *reasons = map(escape, document.verdict)
    sub = (
        f"{plural(len(document.strategies), 'strategy', 'strategies')}, "
        f"{plural(len(document.seeds), 'seed')}, {document.budget} each; judged by "
        f"{label(metric)} {GOAL_NAMES[document.goal]}"
    )
    body = "\n".join(
        [
            f"<h1>Which strategy for {escape(document.task)}?</h1>",
            f'<p class="sub">{escape(sub)}</p>\n<p class="answer">{answer}</p>',
            sentences(reasons),
            f'<div class="charts">{"".join(figures)}</div>',
            "<h2>All numbers</h2>",
            _table(document),
            "<h2>How it was run</h2>",
            _how(document),
        ]
    )
    return page(f"Comparison on {document.task}", body, [plot for _, plot, _ in pictures])


def _table(document: Document) -> str:
    metric, shown = document.judged_by, columns(document)
    rows = [
        (
            "best" if strategy.name == document.best else "",
            [
                (escape(shorten(text, 60)), key)
                for text, key in (c(strategy) for c in shown.values())
            ],
        )
        for strategy in document.strategies
    ]
    note = TABLE_NOTE.format(
        name=title(metric),
        better="higher" if metric.higher_is_better else "lower",
        unit="in points " if metric.share else "",
        margin="two points" if metric.share else f"{document.margin:.2g}",
        rounds=document.shared_rounds,
        marks=", ".join(f"{mark} {kind}" for kind, mark in MARKS.items()),
        goal=GOAL_NAMES[document.goal],
    )
    return f'{sortable_table(shown, rows)}<p class="note">{escape(note)}</p>'


def _how(document: Document) -> str:
    stages = "".join(
        f"<li>{escape(stage.budget)}: {escape(', '.join(stage.strategies))}</li>"
        for stage in document.stages
    )
    sets = "".join(
        f"<li><b>{escape(s.name)}</b>: <code>{escape(s.sets or 'the defaults')}</code></li>"
        for s in document.strategies
    )
    settings = "\n".join(f"{key} = {value!r}" for key, value in document.settings.items())
    return (
        f"<p>What each strategy sets:</p><ul>{sets}</ul>"
        f"<p>Trained up to, and who took part:</p><ul>{stages}</ul>"
        f"<pre><code>{escape(document.command)}</code></pre>"
        f"<details><summary>Settings that all share</summary>"
        f"<pre><code>{escape(settings)}</code></pre></details>"
    )
