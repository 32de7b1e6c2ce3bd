"""What the pictures of a report have in common: axes of rounds, lines, stacks, rows of pixels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.tasks.metrics import Metric
from .formatting import shorten
from .history import History
from .hover import Hover
from .svg import Axes, Plot, draw

HEIGHT = 2.6
MOST_NAMED = 30  # rows whose names still fit beside a picture

Pixel = tuple[int, int, int, int]
# Pixels cannot follow the page; these are seen on white and on black.
BLUE: Pixel = (0x3B, 0x86, 0xD1, 0xFF)
# As the page's own colours of lines in style.py
SERIES_PIXELS: tuple[Pixel, ...] = (
    (0x1F, 0x7B, 0xC0, 0xFF),
    (0xD5, 0x5E, 0x00, 0xFF),
    (0x1B, 0x9E, 0x77, 0xFF),
    (0xB3, 0x4F, 0x9E, 0xFF),
    (0x8F, 0x8F, 0x2E, 0xFF),
    (0x6A, 0x5A, 0xCD, 0xFF),
    (0x2F, 0xA8, 0xB5, 0xFF),
    (0xA0, 0x2C, 0x5A, 0xFF),
    (0x7F, 0x87, 0x93, 0xFF),
    (0xC7, 0x8A, 0x12, 0xFF),
)
_SHADES = 16  # few, so that the picture stays small


def line(axes: Axes, history: History, column: str, label: str, colour: str) -> None:
    """Draw a column of the rounds, where it is known."""
    rounds, values = history.series(column)
    if rounds:
        marker = "o" if len(rounds) <= 50 else None
        axes.plot(rounds, values, color=colour, label=label, marker=marker)


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
            marker = "o" if len(points) <= 50 else None
            x, y = list(points), list(points.values())
            axes.plot(x, y, color=colour, label=label, marker=marker)
        then(axes)
        finish(axes, y_label)

    return draw(name, height, paint, hover)


def filled(history: History, column: str, rounds: list[int]) -> NDArray[np.float64]:
    """Return a column for every round from the first to the last, 0 where it is unknown."""
    span = range(rounds[0], rounds[-1] + 1)
    return np.array([history.rows.get(r, {}).get(column, 0) for r in span], dtype=np.float64)


def stack(axes: Axes, rounds: list[int], layers: Sequence[tuple[str, str, ArrayLike]]) -> None:
    """Draw layers (label, colour, one value per round) on top of each other."""
    base: NDArray[np.float64] = np.zeros(rounds[-1] - rounds[0] + 1)
    for label, colour, values in layers:
        top = base + np.asarray(values)
        axes.stairs(top, edges(rounds), baseline=base, fill=True, color=colour, lw=0, label=label)
        base = top
    axes.margins(x=0.01)


def edges(rounds: list[int]) -> NDArray[np.float64]:
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
    if high - low < 2:  # a run that did not get beyond a round: half a round is none
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


def pixel_rows(
    axes: Axes, pixels: NDArray[np.uint8], first: int, names: list[str], what: str
) -> None:
    """Draw a row of pixels for each name, one column per round."""
    extent = (first - 0.5, first + pixels.shape[1] - 0.5, len(names) - 0.5, -0.5)
    axes.imshow(pixels, extent=extent, aspect="auto", interpolation="none")
    if len(names) <= MOST_NAMED:
        axes.set_yticks(range(len(names)), [shorten(name, 14) for name in names])
        axes.set_ylabel(what)
    else:
        axes.set_ylabel(f"{what}, in order")
    rounds_axis(axes)


def shades(values: NDArray[Any], colour: Pixel) -> NDArray[np.uint8]:
    """Return pixels of a colour, the stronger the larger the value; those of 0 are transparent.

    >>> shades(np.array([[0, 1, 2]]), (9, 9, 9, 200))[0, :, 3].tolist()
    [0, 100, 200]
    """
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[:] = colour
    share = np.ceil(_SHADES * values / (values.max(initial=0) or 1)) / _SHADES
    pixels[..., 3] = np.round(colour[3] * np.clip(share, 0, 1))
    return pixels
