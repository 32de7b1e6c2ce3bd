"""The page of a report, put together from text, tables and pictures."""

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from ...core.config.run_config import flattened
from ...core.tasks.metrics import title, written
from . import (
    choice_charts,
    class_charts,
    client_tables,
    cohort_charts,
    coreset_charts,
    member_charts,
    metric_charts,
    participation_charts,
    similarity_charts,
    story,
    trouble_charts,
)
from .formatting import plural, run_command, shorten
from .history import History
from .html_page import fold, folded_table, page, sentences, text
from .svg import Picture, Plot, figure

# Names of methods, on any axis, by the page that explains them
PAGES = {
    "cosage": ("cosage",),
    "gcfl": ("gcfl", "trusted"),
    "ode": ("ode", "ode-balanced"),
    "auxo": ("auxo", "split-test"),
    "ios": ("index-overlap", "centred-overlap", "signed-overlap"),
}
TITLES = {"cosage": "CosAge", "gcfl": "GCFL", "ode": "ODE", "auxo": "Auxo", "ios": "IOS"}
TITLES["forager"] = "Forager"  # a preset, not a method
_AXES = ("client-selector", "data-selector", "cohorts", "similarity")


def pages_of(config: Mapping[str, Any]) -> list[str]:
    """Return the pages about what a run used."""
    if config.get("strategy") == "forager":
        return ["forager"]
    used = {str(config.get(axis)) for axis in _AXES}
    return [page for page, names in PAGES.items() if used & set(names)]


def read_more(config: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return a line that leads to these pages, where the run is below a checkout, and to demos."""
    found = pages_of(config)
    if not found:
        return ""
    links = ", ".join(filter(None, (_link(page, folder) for page in found)))
    where = f"How it works: {links}. " if links else ""
    demos = ", ".join(f"forager demo {page}" for page in found)
    return f'<p class="note">{where}Where it helps: {demos}.</p>'


def _link(page: str, folder: Path | None) -> str:
    """Return a link to the built page, else to its text; nothing if neither is there."""
    for above in folder.resolve().parents if folder is not None else ():
        for name in (f"site/methods/{page}.html", f"docs/methods/{page}.md"):
            if (above / "docs" / "methods").is_dir() and (above / name).is_file():
                target = escape(os.path.relpath(above / name, folder))
                return f'<a href="{target}">{TITLES[page]}</a>'
    return ""


_LONGEST_VALUE = 200  # characters of a setting: some hold the scale of a thousand features


def chapters(history: History) -> tuple[tuple[str, tuple[Picture, ...]], ...]:
    """Return all pictures that there could be, under their headings; empty ones are left out."""
    went = metric_charts.pictures(history) + participation_charts.PICTURES
    went += choice_charts.PICTURES + metric_charts.COSTS
    shared = cohort_charts.pictures(history) + member_charts.PICTURES
    trained_on = class_charts.SPREAD + coreset_charts.PICTURES + class_charts.STORED
    return (
        ("How it went", went),
        ("What clients trained on", trained_on),
        ("Who shares a model", shared + cohort_charts.SPLITS + similarity_charts.PICTURES),
        ("Faults and slow clients", trouble_charts.PICTURES),
    )


def render(
    run_name: str, config: Mapping[str, Any], history: History, folder: Path | None = None
) -> str:
    """Return the whole page of a run; links lead from the folder that it is to be written to."""
    title = history.started.strategy or str(config.get("strategy") or "Federated run")
    first, folded, plots = _pictures(history)
    sections = [
        f'<h1>{text(title, 300)}</h1>\n<p class="sub">Run {text(run_name, 100)}</p>',
        f'<p class="answer">{escape(story.answer(history))}</p>',
        _tiles(history),
        f'<div class="charts first">{first}<div>{_words(history)}</div></div>',
        read_more(history.started.config or config, folder),
        story.decisions_section(history),
        folded or '<p class="note">The log holds no numbers to draw yet.</p>' * (not first),
        similarity_charts.donors_section(history),
        choice_charts.last_choice_table(history),
        member_charts.members_table(history),
        client_tables.problems_table(history),
        client_tables.clients_table(history),
        fold("Run it again", _command(config)),
        _config_table(config),
    ]
    body = "\n".join(section for section in sections if section)
    return page(f"{run_name}: {title}", body, plots)


def _pictures(history: History) -> tuple[str, str, list[Plot]]:
    """Return the first picture, the others below their headings, and what the pointer asks for."""
    first, chapters_shown, plots = "", [], []
    for heading, pictures in chapters(history):
        figures = []
        for picture in pictures:
            plot = picture.draw(history)
            if plot is not None:
                figures.append(figure(picture.title, plot, picture.words(history)))
                plots.append(plot)
        if figures and not first:
            first, *figures = figures
        if figures:
            summary = f"{heading}: {plural(len(figures), 'picture')}"
            chapters_shown.append(fold(summary, f'<div class="charts">{"".join(figures)}</div>'))
    return first, "\n".join(chapters_shown), plots


def _words(history: History) -> str:
    told = [
        story.own_data_sentence(history),
        story.uplink_sentence(history),
        story.trouble_sentence(history) if history.problems else "",
        cohort_charts.cohorts_sentence(history),
        coreset_charts.coresets_sentence(history),
        class_charts.stores_sentence(history),
        story.traffic_sentence(history),
        story.participation_sentence(history),
        client_tables.skew_sentence(history),
        class_charts.classes_sentence(history),
        class_charts.plan_sentence(history),
        member_charts.agreement_sentence(history),
        similarity_charts.similarity_sentence(history),
        story.preset_sentence(history),
        story.scaling_sentence(history),
        "" if history.problems else story.trouble_sentence(history),
        f"Privacy: {story.privacy(history)}." if history.delta is not None else "",
    ]
    mark = "" if story.ended_well(history) else ' class="warn"'
    ending = f"<li{mark}>{text(story.ending(history), 600)}</li>"
    return sentences([ending, *(escape(sentence) for sentence in told if sentence)])


def _tiles(history: History) -> str:
    figures = {name: (value, more) for name, value, more in story.key_figures(history)}
    shown = [name for name in figures if name.startswith("final ")]
    shown += ["rounds", "bytes down", "bytes up", "bytes selecting"]
    tiles = [(name[0].upper() + name[1:], *figures[name]) for name in shown]
    tiles[1:1] = _other_tiles(history)
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _other_tiles(history: History) -> list[tuple[str, str, str]]:
    """Return what the models reach on the data that the headline is not about."""
    own, metric, worst = history.judged_on_clients, history.metric, story.worst_tenth(history)
    values = history.series(history.column_of(metric, own=not own))[1]
    least = [("Worst 10 % of clients", worst, "on their own data")] if worst else []
    if not values:
        return least
    where = "on the server's test data" if own else "on clients' own data, on average"
    other = (title(metric), written(metric, values[-1]), where)
    return [*least, other] if own else [other, *least]


def _command(config: Mapping[str, Any]) -> str:
    overrides = config.get("overrides")
    if not isinstance(overrides, Mapping):
        return '<p class="note">The log does not say which keys were set for this run.</p>'
    clients = f'--federation-config "num-supernodes={config.get("num-clients", 10)}"'
    ways = {
        "Simulated by Flower": "forager run",
        "The same by hand": f"flwr run . local --stream {clients}",
        "On devices: SUPERLINK is its name in .flwr-home/config.toml": (
            "flwr run . SUPERLINK --stream"
        ),
        "In one process": "forager run --local",
    }
    return "".join(
        f"<p>{escape(way)}:</p><pre><code>{escape(run_command(overrides, program))}</code></pre>"
        for way, program in ways.items()
    )


def _config_table(config: Mapping[str, Any]) -> str:
    values = flattened({key: value for key, value in config.items() if key != "overrides"})
    if not values:
        return '<p class="note">The run ended before its config was written.</p>'
    shown = {key: _value(values[key]) for key in sorted(values)}
    rows = [[(f"<code>{escape(k)}</code>", k), (escape(v), v)] for k, v in shown.items()]
    return folded_table(f"The whole config, {len(rows)} keys", ("key", "value"), rows)


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return shorten(str(value), _LONGEST_VALUE)
