"""Pictures of the studies: differences with intervals, and curves.

The same records give the same bytes. Grey text on no background can be read on light and on dark
pages.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from ...tools.experiments.results import Results
from .claims import ENOUGH_SEEDS, Claim, Outcome, Trial, verdict

# Okabe and Ito's colours, which colour-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
# One colour for one method, whatever else is drawn
METHOD_COLOURS = {
    **dict.fromkeys(
        ("cosage", "trusted", "ode-balanced", "split-test", "centred-overlap"), COLOURS[0]
    ),
    **dict.fromkeys(("gcfl", "ode", "auxo", "index-overlap"), COLOURS[5]),
    **dict.fromkeys(("fedavg", "one model"), COLOURS[6]),
    **dict.fromkeys(("random", "reservoir"), COLOURS[1]),
    **dict.fromkeys(("aoi", "fifo", "flexcfl", "nearest", "cosine"), COLOURS[2]),
    **dict.fromkeys(("skyline", "unlimited", "ifca", "dissimilarity"), COLOURS[3]),
    "aoi, ties by id": COLOURS[4],
    **dict.fromkeys(("oort", "high-loss", "signed-overlap", "fedyogi"), COLOURS[4]),
}
GREY = "#808080"
OUTCOME_COLOURS: Mapping[Outcome, str] = {
    "above": "#0072B2",
    "level": GREY,
    "below": "#D55E00",
    "not measured": GREY,
}
_LINE = 44  # characters
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "forager",
    "svg.fonttype": "none",
    "font.size": 10,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), GREY),
}


def draw_differences(
    claims: Sequence[Claim], found: Mapping[Trial, Outcome], unit: str, path: Path
) -> Path:
    """Draw each test's difference with its 95 % interval, below the claim that it is about.

    The paper's difference is a diamond. Tests with few seeds are hollow and have no interval; those
    in other units are left out.
    """
    groups = _shown(claims)
    heights = sum(1.4 + len(tests) for tests in groups.values())
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 0.7 + 0.27 * heights), layout="constrained")
        axes, height, ticks = figure.subplots(), 0.0, dict[float, str]()
        spans = []
        for claim, tests in groups.items():
            height -= 1.4
            spans.append((height - 0.5, height - 0.5 - len(tests)))
            # From the left edge of the picture, across the axis
            across = blended_transform_factory(figure.transFigure, axes.transData)
            words = axes.text(0.01, height, _plain(claim.says), transform=across)
            words.set(fontweight="bold", va="center", in_layout=False)
            for test in tests:
                height -= 1
                ticks[height] = test.where + test.seeds
                _draw_test(axes, test, height, found[test])
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.tick_params(axis="y", length=0)
        _finish(axes, spans, height - 0.8, unit)
        return _saved(figure, path)


def draw_claims(
    claims: Sequence[Claim], found: Mapping[Trial, Outcome], unit: str, path: Path
) -> Path:
    """Draw a strip per claim: its words and verdict, and below them all its tests.

    It is narrow, so that it can be read on a telephone.
    """
    groups = {
        claim: (wrap(_plain(claim.says), _LINE), tests) for claim, tests in _shown(claims).items()
    }
    heights = sum(len(words) + 0.7 * len(tests) + 0.9 for words, tests in groups.values())
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 0.6 + 0.2 * heights), layout="constrained")
        axes, height, spans = figure.subplots(), 0.0, []
        place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        for claim, (words, tests) in groups.items():
            axes.text(1, height - 1, verdict(claim, found), ha="right", fontweight="bold", **place)
            for line in words:
                height -= 1
                axes.text(0, height, line, **place)
            height -= 0.3
            spans.append((height - 0.3, height - 0.4 - 0.7 * len(tests)))
            for test in tests:
                height -= 0.7
                _draw_test(axes, test, height, found[test], small=True)
            height -= 0.6
        axes.set_yticks([])
        _finish(axes, spans, height, unit)
        return _saved(figure, path)


def _plain(words: str) -> str:
    """Return words without Markdown; a figure and its number stay on one line."""
    return re.sub(r"(figures?|tables?|section) (?=\d)", "\\1\u00a0", words.replace("`", ""))


def _shown(claims: Sequence[Claim]) -> dict[Claim, list[Trial]]:
    """Return the tests in the unit of the page that were done."""
    shown = {claim: [t for t in claim.tests if t.found.count and not t.unit] for claim in claims}
    return {claim: tests for claim, tests in shown.items() if tests}


def _draw_test(
    axes: Axes, test: Trial, height: float, outcome: Outcome, *, small: bool = False
) -> None:
    value, colour, size = test.found, OUTCOME_COLOURS[outcome], 4 if small else 6
    if test.few:  # whose interval would dwarf all others
        axes.plot(*(value.mean, height, "o"), markerfacecolor="none", color=GREY, markersize=size)
    else:
        axes.plot([value.low, value.high], [height] * 2, color=colour, linewidth=size / 3)
        axes.plot(value.mean, height, "o", color=colour, markersize=size)
    if test.paper is not None:
        axes.plot(
            *(test.paper, height, "D"), markerfacecolor="none", color="#009E73", markersize=size
        )


def _finish(axes: Axes, spans: Sequence[tuple[float, float]], lowest: float, unit: str) -> None:
    """Draw the grid behind the tests only, so that no line crosses words."""
    low, high = axes.get_xlim()
    lines = [x for x in MaxNLocator(nbins=5).tick_values(low, high) if low <= x <= high]
    axes.set_xticks(lines)
    for top, bottom in spans:
        axes.vlines(lines, bottom, top, color=GREY, alpha=0.3, linewidth=0.8, zorder=0)
        axes.vlines(0, bottom, top, color=GREY, linewidth=1, zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(lowest, 0)
    axes.set_xlabel(unit, loc="right")
    axes.spines["left"].set_visible(False)
    _bare(axes)


def draw_curves(
    results: Results,
    panels: Mapping[str, Mapping[str, str]],
    metric: str,
    label: str,
    path: Path,
) -> Path:
    """Draw a metric over rounds with 95 % bands; a panel per setting, a curve per method.

    A curve of few seeds has no band, which would hide the others.

    ``panels`` has the cells by the title of their panel and by the method that they show.
    """
    with matplotlib.rc_context(_STYLE):
        columns = min(2, len(panels))
        lines = -(-len(panels) // columns)
        figure = Figure(figsize=(7.2, 0.6 + 2.5 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        drawn = {}
        for axes, (title, cells) in zip(grid.flat, panels.items(), strict=False):
            for position, (method, cell) in enumerate(cells.items()):
                rounds, points = results.curve(cell, metric)
                colour = METHOD_COLOURS.get(method, COLOURS[position % len(COLOURS)])
                (line,) = axes.plot(rounds, [p.mean for p in points], color=colour, linewidth=1.6)
                low, high = ([getattr(p, end) for p in points] for end in ("low", "high"))
                if min((p.count for p in points), default=0) >= ENOUGH_SEEDS:
                    axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
                drawn[method] = line
            axes.set_title(title, fontsize=10, color=GREY)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
            axes.grid(alpha=0.3)
            _bare(axes)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("round")
        figure.legend(
            drawn.values(), drawn, loc="outside lower center", ncols=4, frameon=False, fontsize=10
        )
        return _saved(figure, path)


def _bare(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _saved(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    return path
