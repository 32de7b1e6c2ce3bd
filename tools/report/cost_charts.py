"""What the rounds cost: bytes and seconds."""

import numpy as np

from .axes import HEIGHT, edges, filled, finish, stack
from .formatting import byte_unit
from .history import History
from .hover import over_lines
from .svg import FIRST, INK, SECOND, THIRD, Axes, Picture, Plot, draw


def bytes_chart(history: History) -> Plot | None:
    """Draw the bytes of each round: down, up and for selecting, on top of each other."""
    parts = [
        ("bytes-down", "down, to clients", FIRST),
        ("bytes-up", "up, from clients", SECOND),
        ("bytes-select", "selecting", THIRD),
    ]
    rounds = history.series("bytes-down")[0]
    if not rounds:
        return None
    sent = np.array([filled(history, column, rounds) for column, _, _ in parts])
    spared = np.maximum(0, filled(history, "bytes-up-dense", rounds) - sent[1])
    unit, size = byte_unit(float((sent.sum(axis=0) + spared).max()))

    def paint(axes: Axes) -> None:
        values = zip(parts, sent / size, strict=True)
        stack(axes, rounds, [(label, colour, part) for (_, label, colour), part in values])
        if spared.any():
            whole, label = (sent.sum(axis=0) + spared) / size, "with a dense uplink"
            axes.stairs(whole, edges(rounds), color=INK, linestyle="--", label=label)
        finish(axes, f"{unit} per round")

    return draw("bytes", HEIGHT, paint, over_lines(unit))


def seconds_chart(history: History) -> Plot | None:
    """Draw how long each round took, and how much of it selecting did."""
    rounds = history.series("seconds")[0]
    if not rounds:
        return None
    parts = {
        "clients starting": (SECOND, filled(history, "connect-seconds", rounds)),
        "selecting": (THIRD, filled(history, "select-seconds", rounds)),
    }
    spent = sum(values for _, values in parts.values())
    parts["training and the rest"] = (
        FIRST,
        np.maximum(0, filled(history, "seconds", rounds) - spent),
    )

    def paint(axes: Axes) -> None:
        layers = [(name, tint, values) for name, (tint, values) in parts.items() if values.any()]
        stack(axes, rounds, layers)
        finish(axes, "seconds per round")

    return draw("seconds", HEIGHT, paint, over_lines("s"))


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


SPIKE = 3.0  # times as long as usual

PICTURES = (
    Picture("Bytes in each round", bytes_chart, _bytes_caption),
    Picture("Time of each round", seconds_chart, _seconds_caption),
)
