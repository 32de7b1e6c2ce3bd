"""The page of a report, put together from text, tables and pictures."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from server_app.report import charts, story
from server_app.report.history import History, Problem
from server_app.report.style import CSS
from server_app.report.wording import data_size, duration, flat, percent, run_command, shorten

MOST_PROBLEMS = 200
MOST_CLIENTS = 1000

# Nothing may be loaded from anywhere; pictures of pixels are inside the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
{body}
</body>
</html>
"""


def render(run_name: str, config: Mapping[str, Any], history: History) -> str:
    """Return the whole page of a run."""
    title = history.strategy or str(config.get("strategy") or "Federated run")
    sections = [
        _head(title, run_name, history),
        "<h2>How it went</h2>",
        _pictures(history),
        _clients_table(history),
        _problems_table(history),
        "<h2>Run it again</h2>",
        _command(config),
        "<h2>Config</h2>",
        _config_table(config),
    ]
    body = "\n".join(section for section in sections if section)
    return PAGE.format(
        policy=POLICY, title=escape(shorten(f"{run_name}: {title}", 120)), css=CSS, body=body
    )


def _head(title: str, run_name: str, history: History) -> str:
    sentences = [
        story.accuracy_sentence(history),
        story.traffic_sentence(history),
        story.participation_sentence(history),
        story.trouble_sentence(history),
        *([f"Privacy: {story.privacy(history)}."] if history.delta is not None else []),
    ]
    mark = "" if story.ended_well(history) else ' class="warn"'
    lines = [f"<li{mark}>{_text(story.ending(history), 600)}</li>"]
    lines += [f"<li>{escape(sentence)}</li>" for sentence in sentences]
    return (
        f'<h1>{_text(title, 300)}</h1>\n<p class="sub">Run {_text(run_name, 100)}</p>\n'
        f'{_tiles(history)}\n<ul class="story">{"".join(lines)}</ul>'
    )


def _tiles(history: History) -> str:
    known = story.last_and_best(history)
    (last_round, last), (best_round, best) = known or ((0, None), (0, None))
    down, up, selecting = (history.total(f"bytes-{part}") for part in ("down", "up", "select"))
    dense = story.dense_uplink(history)
    instead = "from clients" if dense is None else f"instead of {data_size(dense)}"
    tiles = [
        ("Final accuracy", percent(last), f"round {last_round}" if known else "not reported"),
        ("Best accuracy", percent(best), f"round {best_round}" if known else "not reported"),
        ("Rounds", str(history.rounds_done), f"in {duration(history.seconds)}"),
        ("Down", data_size(down), "to clients"),
        ("Up", data_size(up), instead),
        (
            "Selecting",
            data_size(selecting),
            f"{duration(history.total('select-seconds'))} choosing",
        ),
    ]
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _pictures(history: History) -> str:
    figures = [
        _figure(
            "Accuracy",
            charts.accuracy_chart(history),
            "Look for a curve that still rises at the end (more rounds would help) or falls back. "
            "A wide band means that the model serves some clients far better than others.",
        ),
        _figure(
            "Loss",
            charts.loss_chart(history),
            "Training loss that falls while test loss rises is overfitting; jumps hint at "
            "clients that pull the model in different directions.",
        ),
        _figure(
            "How often each client was chosen",
            charts.participation_chart(history),
            "A flat skyline means that all took part alike. A steep one means that the model "
            "learns mostly from the clients on the left; gaps on the right were never asked.",
        ),
        _figure(
            "Who was chosen when, and how long others waited",
            charts.choices_chart(history),
            _CHOICES_CAPTION,
        ),
        _figure(
            "Bytes in each round",
            charts.bytes_chart(history),
            "Look at what selecting costs beside training, and for rounds in which less came up "
            "than went down: clients that failed, or a sparse uplink. A dashed line is what whole "
            "models would have taken.",
        ),
        _figure(
            "Time of each round",
            charts.seconds_chart(history),
            "Spikes are rounds that waited for slow or dead clients until the deadline.",
        ),
    ]
    return f'<div class="charts">{"".join(figures)}</div>'


def _swatch(pixel: tuple[int, int, int, int]) -> str:
    return f'<span class="key" style="background:rgb{pixel[:3]}"></span>'


_CHOICES_CAPTION = (
    f"A row is a client, a column a round. {_swatch(charts.ANSWERED)} chosen, "
    f"{_swatch(charts.TROUBLED)} chosen, but the reply failed, came late or was set aside; "
    f"{_swatch(charts.WAITING)} waiting, the stronger the longer. Look for rows that fill, and for "
    "clients that fail again and again."
)


def _figure(title: str, svg: str, caption: str) -> str:
    """Return a picture with its caption; both come as HTML. Without a picture, say so."""
    content = f"{svg}<figcaption>{caption}</figcaption>"
    if not svg:
        content = '<p class="note">The log holds no numbers for this picture.</p>'
    return f"<figure><h3>{escape(title)}</h3>{content}</figure>\n"


def _clients_table(history: History) -> str:
    if not history.clients:
        return ""
    last = {key: number for number in sorted(history.chosen) for key in history.chosen[number]}
    trouble = Counter(problem.client for problem in history.problems)
    counts = history.times_chosen()
    waits = history.ages().max(axis=1, initial=0)
    rows = [
        (
            _text(key, 80),
            str(counts[key]),
            str(last.get(key, "never")),
            str(wait),
            str(trouble[key]),
        )
        for key, wait in zip(history.clients[:MOST_CLIENTS], waits, strict=False)
    ]
    head = ("client", "times chosen", "last in round", "longest wait", "troubles")
    return (
        f"<details><summary>Every client that was chosen, in numbers</summary>"
        f"{_table(head, rows, counts=(1, 2, 3, 4))}"
        f"{_left_out(len(history.clients) - MOST_CLIENTS, 'clients')}</details>"
    )


def _problems_table(history: History) -> str:
    if not history.problems:
        return ""
    rounds: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for problem in history.problems:
        rounds[_label(problem)].append(problem.round)
    most_often = sorted(rounds.items(), key=lambda item: -len(item[1]))
    rows = [
        (_text(client, 80), _text(what, 60), _text(reason, 300), str(len(when)), _rounds(when))
        for (client, what, reason), when in most_often[:MOST_PROBLEMS]
    ]
    head = ("client", "what", "reason", "times", "in rounds")
    return (
        f"<h2>Failures and quarantined replies</h2>{_table(head, rows, counts=(3,))}"
        f"{_left_out(len(most_often) - MOST_PROBLEMS, 'rows')}"
    )


def _label(problem: Problem) -> tuple[str, str, str]:
    return problem.client, f"{problem.kind} {problem.fate}", problem.reason


def _rounds(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, …"


def _left_out(count: int, what: str) -> str:
    return f'<p class="note">{count} more {what} are in events.jsonl.</p>' if count > 0 else ""


def _command(config: Mapping[str, Any]) -> str:
    overrides = config.get("overrides")
    if not isinstance(overrides, Mapping):
        return '<p class="note">The log does not say which keys were set for this run.</p>'
    return f"<pre><code>{escape(run_command(overrides))}</code></pre>"


def _config_table(config: Mapping[str, Any]) -> str:
    values = flat({key: value for key, value in config.items() if key != "overrides"})
    if not values:
        return '<p class="note">The run ended before its config was written.</p>'
    rows = [(f"<code>{escape(key)}</code>", escape(_value(values[key]))) for key in sorted(values)]
    return _table(("key", "value"), rows)


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _table(
    head: tuple[str, ...], rows: Iterable[tuple[str, ...]], counts: tuple[int, ...] = ()
) -> str:
    """Return a table; the cells are HTML already, those at the positions `counts` are numbers."""
    marks = ['<{} class="count">' if place in counts else "<{}>" for place in range(len(head))]
    titles = "".join(
        mark.format("th") + f"{name}</th>" for mark, name in zip(marks, head, strict=True)
    )
    lines = (
        "<tr>"
        + "".join(mark.format("td") + f"{cell}</td>" for mark, cell in zip(marks, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _text(text: str, length: int) -> str:
    """Return a stranger's text, made harmless and not too long."""
    return escape(shorten(text, length))
