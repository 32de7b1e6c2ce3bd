"""Who took part: how often, when, and how long others waited."""

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axes import BLUE, MOST_NAMED, Pixel, legend, pixel_rows, rows_height, shades
from .formatting import plural, shorten
from .history import History
from .hover import frame
from .svg import FIRST, INK, Axes, Picture, Plot, draw, swatch

ANSWERED = BLUE
TROUBLED: Pixel = (0xE0, 0x6C, 0x2B, 0xFF)
WAITING: Pixel = (0x80, 0x80, 0x80, 0xB0)  # of the longest wait; shorter ones are fainter
AWAY: Pixel = (0xC7, 0x8A, 0x12, 0x48)
MOST_CELLS = 500_000  # of the picture of choices: with more, only some clients are drawn


def participation_chart(history: History) -> Plot | None:
    """Draw how often each client was chosen, from the most to the least often."""
    counts = history.participation()
    named = history.times_chosen().most_common()
    if not any(counts):
        return None

    def paint(axes: Axes) -> None:
        if len(counts) <= MOST_NAMED:
            axes.bar(range(len(counts)), counts, color=FIRST, width=0.75)
            labels = [shorten(history.name_of(key), 14) for key, _ in named]
            upright = sum(len(label) + 1 for label in labels) > 36  # the width of a phone
            axes.set_xticks(range(len(named)), labels, rotation=90 if upright else 0)
        else:  # one outline, so that ten thousand clients are a few steps
            levels, widths = np.unique(counts, return_counts=True)
            edges = np.concatenate([[0], np.cumsum(widths[::-1])])
            axes.stairs(levels[::-1], edges, fill=True, color=FIRST)
        middle = float(np.median(counts))
        axes.axhline(middle, color=INK, linewidth=0.8, linestyle="--", label="median")
        axes.set_ylabel("times chosen")
        axes.locator_params(axis="y", integer=True)
        axes.set_xlabel("clients, most often chosen first")
        legend(axes)

    return draw("participation", rows_height(len(history.clients)), paint)


def choices_chart(history: History) -> Plot | None:
    """Draw who was chosen when and how long the others waited: clients by rounds."""
    if not any(history.chosen.values()):
        return None
    first, last = min(history.chosen), max(history.chosen)
    step = math.ceil(len(history.clients) * (last - first + 1) / MOST_CELLS)
    shown = history.clients[::step]
    row_of = {key: row for row, key in enumerate(shown)}
    chosen = np.zeros((len(shown), last - first + 1), dtype=bool)
    for current, clients in history.chosen.items():
        chosen[[row_of[key] for key in clients if key in row_of], current - first] = True
    away = np.zeros_like(chosen)
    for current, absent in history.away.items():
        if first <= current <= last:
            away[[row_of[key] for key in absent if key in row_of], current - first] = True
    for key, since in history.joined.items():
        if key in row_of:
            away[row_of[key], : max(0, since - first)] = True
    away &= ~chosen
    pixels = shades(history.ages()[::step], WAITING)
    pixels[away] = AWAY
    pixels[chosen] = ANSWERED
    for problem in history.problems:
        row, column = row_of.get(problem.client), problem.round - first
        if problem.kind == "train" and row is not None and 0 <= column < chosen.shape[1]:
            pixels[row, column] = TROUBLED if chosen[row, column] else pixels[row, column]

    def paint(axes: Axes) -> None:
        what = "client" if step == 1 else f"one client in {step}"
        pixel_rows(axes, pixels, first, [history.name_of(key) for key in shown], what)

    def hover(axes: Axes) -> dict[str, Any]:
        told = {"chosen": _packed(chosen)} | ({"away": _packed(away)} if away.any() else {})
        return frame(axes) | {
            "rows": [shorten(history.name_of(key), 24) for key in shown],
            "columns": [f"round {current}" for current in range(first, last + 1)],
            **told,
        }

    return draw("choices", rows_height(len(shown)), paint, hover)


def _packed(cells: NDArray[np.bool_]) -> str:
    """Pack cells into bits, row by row, as text."""
    return base64.b64encode(np.packbits(cells, axis=1).tobytes()).decode()


def _rgb(pixel: Pixel) -> str:
    return f"rgb{pixel[:3]}"


def _participation_caption(history: History) -> str:
    text = (
        "A flat profile means that all took part equally. A steep one means that the model learns "
        "mostly from the clients on the left."
    )
    never = history.participation().count(0)
    return f"{text} {plural(never, 'client')} on the right never trained." if never else text


def _choices_caption(history: History) -> str:
    text = f"Rows are clients, columns are rounds. {swatch(_rgb(ANSWERED))} chosen, "
    if any(problem.kind == "train" for problem in history.problems):
        text += f"{swatch(_rgb(TROUBLED))} chosen, but the reply failed, came late or was set "
        text += "aside, "
    text += f"{swatch(_rgb(WAITING))} waiting, stronger if longer"
    if history.away or history.joined:
        text += f", {swatch(_rgb(AWAY))} not connected"
    text += ". A blank cell follows a round in which the client was chosen."
    return text


PICTURES = (
    Picture("How often each client was chosen", participation_chart, _participation_caption),
    Picture("Who was chosen when, and how long others waited", choices_chart, _choices_caption),
)
