"""What the pictures of a report have in common: axes of rounds, lines, stacks, rows of pixels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.tasks.metrics import Metric
from .formatting import shorten
from .history import History
from .hover import Hover, over_cells, over_lines
from .svg import Axes, Plot, draw

HEIGHT = 2.6
MOST_NAMED = 30  # rows whose names still fit beside a picture

Pixel = tuple[int, int, int, int]
# Pixels cannot follow the page; these are seen on white and on black.
BLUE: Pixel = (0x3B, 0x86, 0xD1, 0xFF)
# As the page's own colours of lines in style.py
_LINES = "1f7bc0 d55e00 1b9e77 b34f9e 8f8f2e 6a5acd 2fa8b5 a02c5a 7f8793 c78a12"
SERIES_PIXELS = [(*bytes.fromhex(colour), 0xFF) for colour in _LINES.split()]
_SHADES = 16  # few, so that the picture stays small


def line(axes: Axes, history: History, column: str, label: str, colour: str) -> None:
    """Draw a column of the rounds, where it is known."""
    plot_points(axes, dict(zip(*history.series(column), strict=True)), label, colour)


def plot_points(axes: Axes, points: Mapping[int, float], label: str, colour: str) -> None:
    """Draw values by round, with dots while these can be told apart."""
    if points:
        marker = "o" if len(points) <= 50 else None
        axes.plot(list(points), list(points.values()), color=colour, label=label, marker=marker)


def lines_chart(
    name: str,
    y_label: str,
    lines: Iterable[tuple[str, str, Mapping[int, float]]],
    hover: Hover,
    then: Callable[[Axes], object] = lambda axes: None,
    height: float = HEIGHT,
) -> Plot | None:
    """Draw lines (label, colour, value by round) over rounds; None if there is no point."""
    known = [(label, colour, points) for label, colour, points in lines if points]
    if not known:
        return None

    def paint(axes: Axes) -> None:
        for label, colour, points in known:
            plot_points(axes, points, label, colour)
        then(axes)
        finish(axes, y_label)

    return draw(name, height, paint, hover)


def filled(history: History, column: str, rounds: Sequence[int]) -> NDArray[np.float64]:
    """Return a column for every round from the first to the last, 0 where it is unknown."""
    span = range(rounds[0], rounds[-1] + 1)
    return np.array([history.rows.get(r, {}).get(column, 0) for r in span], dtype=np.float64)


def layers_chart(
    name: str,
    y_label: str,
    rounds: Sequence[int],
    layers: Iterable[tuple[str, str, ArrayLike]],
    unit: str = "",
    then: Callable[[Axes], object] = lambda axes: None,
) -> Plot:
    """Draw layers (label, colour, one value per round) on top of each other; empty ones not."""
    known = [(label, tint, np.asarray(values)) for label, tint, values in layers if np.any(values)]

    def paint(axes: Axes) -> None:
        base: NDArray[np.float64] = np.zeros(rounds[-1] - rounds[0] + 1)
        for label, tint, values in known:
            top = base + values
            axes.stairs(top, edges(rounds), baseline=base, fill=True, color=tint, lw=0, label=label)
            base = top
        axes.margins(x=0.01)
        then(axes)
        finish(axes, y_label)

    return draw(name, HEIGHT, paint, over_lines(unit))


def edges(rounds: Sequence[int]) -> NDArray[np.float64]:
    """Return where the rounds from the first to the last begin and end."""
    return np.arange(rounds[0], rounds[-1] + 2, dtype=np.float64) - 0.5


def finish(axes: Axes, y_label: str) -> None:
    """Name the axes of a picture over rounds and add its legend."""
    axes.set_ylabel(y_label)
    axes.grid(axis="y")
    rounds_axis(axes)
    legend(axes)


def legend(axes: Axes) -> None:
    """Put the legend above the picture, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper left", ncols=3)


def rounds_axis(axes: Axes) -> None:
    """Let the horizontal axis count rounds."""
    axes.set_xlabel("round")
    low, high = axes.get_xlim()
    if high - low < 1:  # a run that did not get beyond a round: half a round is none
        middle = round((low + high) / 2)
        axes.set_xlim(middle - 1, middle + 1)
    axes.locator_params(axis="x", integer=True)


def metric_axis(axes: Axes, metric: Metric) -> None:
    """Let the vertical axis write a metric's values: shares as percentages."""
    if metric.share:
        percent_axis(axes)


def percent_axis(axes: Axes) -> None:
    """Let the vertical axis write shares as percentages."""
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def rows_height(rows: int) -> float:
    """Return inches that leave room for the names of this many rows, if they are named at all."""
    return float(np.clip(0.8 + 0.13 * rows, 2.6, 4.7))


def cells_chart(
    name: str,
    table: NDArray[np.float64],
    rows: Sequence[str],
    what: str,
    first: int | None = None,
    hover_rows: Sequence[str] = (),
) -> Plot | None:
    """Draw a row of cells for each name; a column is a round from the `first` on, else a class."""
    if not table.any():
        return None

    def paint(axes: Axes) -> None:
        if first is not None:
            pixel_rows(axes, shades(table, BLUE), first, rows, what)
            return
        axes.imshow(shades(table, BLUE), aspect="auto", interpolation="none")
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("class")
        name_rows(axes, rows, what)

    kind, start = ("class", 0) if first is None else ("round", first)
    columns = [f"{kind} {start + column}" for column in range(table.shape[1])]
    return draw(name, rows_height(len(rows)), paint, over_cells(hover_rows, columns, table))


def pixel_rows(
    axes: Axes, pixels: NDArray[np.uint8], first: int, names: Sequence[str], what: str
) -> None:
    """Draw a row of pixels for each name, one column per round."""
    extent = (first - 0.5, first + pixels.shape[1] - 0.5, len(names) - 0.5, -0.5)
    axes.imshow(pixels, extent=extent, aspect="auto", interpolation="none")
    name_rows(axes, names, what if len(names) <= MOST_NAMED else f"{what}, in order")
    rounds_axis(axes)


def name_rows(axes: Axes, names: Sequence[str], what: str) -> None:
    """Name the rows of a picture as far as there is room."""
    if len(names) <= MOST_NAMED:
        axes.set_yticks(range(len(names)), [shorten(name, 14) for name in names])
    axes.set_ylabel(what)


def shades(values: NDArray[Any], colour: Pixel) -> NDArray[np.uint8]:
    """Return pixels of a colour, the stronger the larger the value; those of 0 are transparent."""
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[:] = colour
    share = np.ceil(_SHADES * values / (values.max(initial=0) or 1)) / _SHADES
    pixels[..., 3] = np.round(colour[3] * np.clip(share, 0, 1))
    return pixels
