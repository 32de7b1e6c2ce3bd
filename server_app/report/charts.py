"""The pictures of a report."""

from typing import TYPE_CHECKING, Any

import numpy as np

from server_app.report.history import History
from server_app.report.svg import FIRST, INK, SECOND, THIRD, draw
from server_app.report.wording import byte_unit, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

HEIGHT = 2.6
MOST_NAMED_CLIENTS = 30

# Pixels cannot follow the page; these are seen on white and on black.
ANSWERED, TROUBLED = (0x3B, 0x86, 0xD1, 0xFF), (0xE0, 0x6C, 0x2B, 0xFF)
WAITING = (0x80, 0x80, 0x80, 0xB0)  # of the longest wait; shorter ones are fainter
_SHADES = 16  # few, so that the picture stays small


def accuracy_chart(history: History) -> str:
    """Draw accuracy over rounds: on the server, and the clients' mean with its spread."""

    def paint(axes: "Axes") -> None:
        _line(axes, history, "accuracy", "server's test", FIRST)
        _line(axes, history, "clients-accuracy-mean", "clients' mean", SECOND)
        worst = dict(zip(*history.series("clients-accuracy-worst-10"), strict=True))
        best = dict(zip(*history.series("clients-accuracy-best-10"), strict=True))
        both = sorted(worst.keys() & best.keys())
        if both:
            low, high = [worst[r] for r in both], [best[r] for r in both]
            label = "worst to best 10 %"
            width = 0 if len(both) > 1 else 4  # an area over a single round has no width
            axes.fill_between(both, low, high, color=SECOND, alpha=0.3, lw=width, label=label)
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")
        _finish(axes, "accuracy")

    known = history.series("accuracy")[0] or history.series("clients-accuracy-mean")[0]
    return draw("accuracy", HEIGHT, paint) if known else ""


def loss_chart(history: History) -> str:
    """Draw loss over rounds: test, training, clients."""
    lines = [
        ("loss", "server's test", FIRST),
        ("train-loss", "training", SECOND),
        ("clients-loss-mean", "clients' mean", THIRD),
    ]

    def paint(axes: "Axes") -> None:
        for column, label, colour in lines:
            _line(axes, history, column, label, colour)
        _finish(axes, "loss")

    known = any(history.series(column)[0] for column, _, _ in lines)
    return draw("loss", HEIGHT, paint) if known else ""


def participation_chart(history: History) -> str:
    """Draw how often each client was chosen, from the most to the least often."""
    counts = history.participation()
    named = history.times_chosen().most_common()

    def paint(axes: "Axes") -> None:
        if len(counts) <= MOST_NAMED_CLIENTS:
            axes.bar(range(len(counts)), counts, color=FIRST, width=0.75)
            labels = [shorten(key, 14) for key, _ in named]
            upright = sum(map(len, labels)) > 50
            axes.set_xticks(range(len(named)), labels, rotation=90 if upright else 0)
        else:  # one outline, so that ten thousand clients are a few steps
            levels, widths = np.unique(counts, return_counts=True)
            edges = np.concatenate([[0], np.cumsum(widths[::-1])])
            axes.stairs(levels[::-1], edges, fill=True, color=FIRST)
        axes.axhline(
            float(np.median(counts)), color=INK, linewidth=0.8, linestyle="--", label="median"
        )
        axes.set_ylabel("times chosen")
        axes.locator_params(axis="y", integer=True)
        axes.set_xlabel("clients, most often chosen first")
        _legend(axes)

    return draw("participation", _height(history), paint) if any(counts) else ""


def choices_chart(history: History) -> str:
    """Draw who was chosen when and how long the others waited: a row a client, a column a round."""
    if not any(history.chosen.values()):
        return ""
    row_of = {key: row for row, key in enumerate(history.clients)}
    first, last = min(history.chosen), max(history.chosen)
    pixels = _shades(history.ages())
    for current, clients in history.chosen.items():
        pixels[[row_of[key] for key in clients], current - first] = ANSWERED
    for problem in history.problems:
        chosen = problem.client in history.chosen.get(problem.round, [])
        if chosen and problem.kind == "train":
            pixels[row_of[problem.client], problem.round - first] = TROUBLED

    def paint(axes: "Axes") -> None:
        extent = (first - 0.5, last + 0.5, len(row_of) - 0.5, -0.5)
        axes.imshow(pixels, extent=extent, aspect="auto", interpolation="none")
        if len(row_of) <= MOST_NAMED_CLIENTS:
            axes.set_yticks(range(len(row_of)), [shorten(key, 14) for key in row_of])
        axes.set_ylabel(
            "client" if len(row_of) <= MOST_NAMED_CLIENTS else "client, in order of keys"
        )
        _rounds_axis(axes)

    return draw("choices", _height(history), paint)


def _shades(ages: "NDArray[np.int64]") -> "NDArray[np.uint8]":
    """Return pixels that are the darker the longer a client has waited."""
    pixels = np.zeros((*ages.shape, 4), dtype=np.uint8)
    pixels[:] = WAITING
    share = np.ceil(_SHADES * ages / max(1, int(ages.max(initial=0)))) / _SHADES
    pixels[..., 3] = np.round(WAITING[3] * share)
    return pixels


def bytes_chart(history: History) -> str:
    """Draw the bytes of each round: down, up and for selecting, on top of each other."""
    parts = [
        ("bytes-down", "down, to clients", FIRST),
        ("bytes-up", "up, from clients", SECOND),
        ("bytes-select", "selecting", THIRD),
    ]
    rounds = history.series("bytes-down")[0]
    if not rounds:
        return ""
    stack = np.array([_filled(history, column, rounds) for column, _, _ in parts])
    spared = np.maximum(0, _filled(history, "bytes-up-dense", rounds) - stack[1])
    unit, size = byte_unit(float((stack.sum(axis=0) + spared).max()))

    def paint(axes: "Axes") -> None:
        base = np.zeros(stack.shape[1])
        for values, (_, label, colour) in zip(stack / size, parts, strict=True):
            _steps(axes, rounds, base + values, base, label, colour)
            base = base + values
        if spared.any():
            edges, label = _edges(rounds), "with a dense uplink"
            axes.stairs(base + spared / size, edges, color=INK, linestyle="--", label=label)
        _finish(axes, f"{unit} a round")

    return draw("bytes", HEIGHT, paint)


def seconds_chart(history: History) -> str:
    """Draw how long each round took, and how much of it selecting did."""
    rounds = history.series("seconds")[0]

    def paint(axes: "Axes") -> None:
        selecting = _filled(history, "select-seconds", rounds)
        whole = np.maximum(_filled(history, "seconds", rounds), selecting)
        _steps(axes, rounds, selecting, 0 * selecting, "selecting", THIRD)
        _steps(axes, rounds, whole, selecting, "training and the rest", FIRST)
        _finish(axes, "seconds a round")

    return draw("seconds", HEIGHT, paint) if rounds else ""


def _height(history: History) -> float:
    """Return inches that leave room for the names of the clients, the same for both pictures."""
    return float(np.clip(0.8 + 0.13 * len(history.clients), 2.6, 4.2))


def _line(axes: "Axes", history: History, column: str, label: str, colour: str) -> None:
    rounds, values = history.series(column)
    if rounds:
        marker = "o" if len(rounds) <= 40 else None
        axes.plot(rounds, values, color=colour, label=label, marker=marker)


def _filled(
    history: History, column: str, rounds: list[int]
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return a column for every round from the first to the last, 0 where it is unknown."""
    span = range(rounds[0], rounds[-1] + 1)
    return np.array([history.rows.get(r, {}).get(column, 0) for r in span], dtype=np.float64)


def _steps(axes: "Axes", rounds: list[int], top: Any, base: Any, label: str, colour: str) -> None:
    edges = _edges(rounds)
    axes.stairs(top, edges, baseline=base, fill=True, color=colour, linewidth=0, label=label)
    axes.margins(x=0.01)


def _edges(rounds: list[int]) -> "NDArray[np.float64]":
    return np.arange(rounds[0], rounds[-1] + 2, dtype=np.float64) - 0.5


def _finish(axes: "Axes", y_label: str) -> None:
    axes.set_ylabel(y_label)
    axes.grid(axis="y")
    _rounds_axis(axes)
    _legend(axes)


def _legend(axes: "Axes") -> None:
    """Put the legend above the picture, where it hides nothing."""
    axes.figure.legend(loc="outside upper left", ncols=3)


def _rounds_axis(axes: "Axes") -> None:
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
