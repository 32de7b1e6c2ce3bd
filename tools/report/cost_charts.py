"""What the rounds cost: bytes and seconds."""

import numpy as np

from .axes import edges, filled, layers_chart
from .formatting import byte_unit
from .history import History
from .svg import FIRST, INK, SECOND, THIRD, Axes, Picture, Plot

PARTS = ("down", "up", "select")  # that the bytes of a round are counted in
SPIKE = 3.0  # times as long as usual


def bytes_chart(history: History) -> Plot | None:
    """Draw the bytes of each round: down, up and for selecting, on top of each other."""
    rounds = history.series("bytes-down")[0]
    if not rounds:
        return None
    down, up, selecting = (filled(history, f"bytes-{part}", rounds) for part in PARTS)
    spared = np.maximum(0, filled(history, "bytes-up-dense", rounds) - up)
    whole = down + up + selecting + spared
    unit, size = byte_unit(float(whole.max()))

    def beside(axes: Axes) -> None:
        if spared.any():
            label = "with a dense uplink"
            axes.stairs(whole / size, edges(rounds), color=INK, linestyle="--", label=label)

    layers = [
        ("down, to clients", FIRST, down / size),
        ("up, from clients", SECOND, up / size),
        ("selecting", THIRD, selecting / size),
    ]
    return layers_chart("bytes", f"{unit} per round", rounds, layers, unit, beside)


def seconds_chart(history: History) -> Plot | None:
    """Draw how long each round took, and how much of it selecting did."""
    rounds = history.series("seconds")[0]
    if not rounds:
        return None
    columns = ("connect-seconds", "select-seconds", "seconds")
    starting, selecting, all_of_it = (filled(history, column, rounds) for column in columns)
    layers = [
        ("clients starting", SECOND, starting),
        ("selecting", THIRD, selecting),
        ("training and the rest", FIRST, np.maximum(0, all_of_it - starting - selecting)),
    ]
    return layers_chart("seconds", "seconds per round", rounds, layers, "s")


def _bytes_caption(history: History) -> str:
    parts = ["Bytes of a round, without those of testing on clients."]
    if history.total("bytes-select"):
        parts.append("Compare what selecting costs with what training costs.")
    if history.series("bytes-up-dense")[0]:
        parts.append("The dashed line is what whole models would have taken.")
    elif any(problem.kind == "train" for problem in history.problems):
        parts.append("Rounds in which less came up than went down had clients that failed.")
    return " ".join(parts)


def _seconds_caption(history: History) -> str:
    seconds = history.series("seconds")[1]
    text = "How long each round took on the server's clock, evaluation included."
    if len(seconds) > 2 and max(seconds) > SPIKE * float(np.median(seconds)):
        text += " Spikes are rounds that took much longer than usual: slow or dead clients, or"
        text += " work that is done only now and then."
    return text


PICTURES = (
    Picture("Bytes in each round", bytes_chart, _bytes_caption),
    Picture("Time of each round", seconds_chart, _seconds_caption),
)
