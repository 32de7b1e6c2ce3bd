"""Pictures of the studies: differences with intervals, and curves.

The same records give the same bytes. Grey text on no background can be read on light and on dark
pages.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...tools.experiments.results import Results
from .claims import ENOUGH_SEEDS, Outcome, Trial

# Okabe and Ito's colours, which colour-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
# One colour for one method, whatever else is drawn
METHOD_COLOURS = {
    **dict.fromkeys(("cosage", "gcfl", "ode", "auxo", "index-overlap"), COLOURS[0]),
    **dict.fromkeys(("gcfl-paper", "ode-paper", "auxo-paper", "index-overlap-paper"), COLOURS[5]),
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
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "forager",
    "svg.fonttype": "none",
    "font.size": 10,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), GREY),
}


def draw_differences(
    tests: Sequence[Trial], found: Mapping[Trial, Outcome], unit: str, path: Path
) -> Path:
    """Draw each test's difference with its 95 % interval, and the paper's as a diamond.

    Those with few seeds are hollow and have no interval.
    """
    shown = [test for test in tests if test.found.count]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 1.0 + 0.34 * len(shown)), layout="constrained")
        axes = figure.subplots()
        for height, test in enumerate(reversed(shown)):
            value, colour = test.found, OUTCOME_COLOURS[found[test]]
            if test.few:  # whose interval would dwarf all others
                axes.plot(value.mean, height, "o", markerfacecolor="none", color=GREY)
            else:
                axes.plot([value.low, value.high], [height] * 2, color=colour, linewidth=2)
                axes.plot(value.mean, height, "o", color=colour)
            if test.paper is not None:
                axes.plot(test.paper, height, "D", markerfacecolor="none", color="#009E73")
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(shown)), [test.where + test.seeds for test in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set_xlabel(unit)
        axes.grid(axis="x", alpha=0.3)
        _bare(axes)
        return _saved(figure, path)


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
