"""How well the model does over rounds, its metrics and its loss, and what the rounds cost."""

from functools import partial

import numpy as np

from ...core.log.events import Baseline
from ...core.tasks.metric_text import label, title
from ...core.tasks.metrics import Metric
from .axes import HEIGHT, edges, filled, finish, layers_chart, line, lines_chart, metric_axis
from .formatting import byte_unit, shorten
from .history import History
from .hover import over_lines, over_metric
from .svg import FIRST, INK, SECOND, THIRD, Axes, Picture, Plot, draw

PARTS = ("down", "up", "select")  # that the bytes of a round are counted in
SPIKE = 3.0  # times as long as usual


def metric_chart(metric: Metric, history: History) -> Plot | None:
    """Draw a metric over rounds: on the server, and the clients' mean with its spread."""
    name = metric.name
    if not (history.series(name)[0] or history.series(f"clients-{name}-mean")[0]):
        return None

    def paint(axes: Axes) -> None:
        line(axes, history, name, "server's test", FIRST)
        line(axes, history, f"clients-{name}-mean", "clients' mean", SECOND)
        worst = dict(zip(*history.series(f"clients-{name}-worst-10"), strict=True))
        best = dict(zip(*history.series(f"clients-{name}-best-10"), strict=True))
        both = sorted(worst.keys() & best.keys())
        if both:
            ends = [worst[r] for r in both], [best[r] for r in both]
            words = "worst to best 10 %"
            width = 0 if len(both) > 1 else 4  # an area over a single round has no width
            axes.fill_between(both, *ends, color=SECOND, alpha=0.3, lw=width, label=words)
        known = history.last(Baseline)
        least = known.metrics.get(name) if known is not None else None
        if known is not None and least is not None:
            rounds = history.series(name)[0] or history.series(f"clients-{name}-mean")[0]
            flat, words = [least] * len(rounds), shorten(known.what, 24)
            (drawn,) = axes.plot(rounds, flat, color=INK, linewidth=0.8, linestyle="--")
            drawn.set_label(words)
            if len(rounds) == 1:  # a line needs two points
                drawn.set(marker="_", markersize=14)
        metric_axis(axes, metric)
        finish(axes, label(metric))

    return draw(f"metric-{name}", HEIGHT, paint, over_metric(metric))


def loss_chart(history: History) -> Plot | None:
    """Draw loss over rounds: test, training, clients."""
    lines = [
        ("loss", "server's test", FIRST),
        ("train-loss", "training", SECOND),
        ("clients-loss-mean", "clients' mean", THIRD),
    ]
    drawn = [
        (words, colour, dict(zip(*history.series(column), strict=True)))
        for column, words, colour in lines
    ]
    return lines_chart("loss", "loss", drawn, over_lines(""))


def _caption(metric: Metric, history: History) -> str:
    moves, back = ("rises", "falls") if metric.higher_is_better else ("falls", "rises")
    better = "Higher" if metric.higher_is_better else "Lower"
    text = (
        f"{better} is better. Look for a curve that still {moves} at the end (more rounds would "
        f"help) or {back} back."
    )
    known = history.last(Baseline)
    if known is not None and known.metrics.get(metric.name) is not None:
        text += " The dashed line is what a constant answer would reach."
    if history.series(f"clients-{metric.name}-worst-10")[0]:
        text += " A wide band means that the model serves some clients far better than others."
    return text


def pictures(history: History) -> tuple[Picture, ...]:
    """Return a picture per metric of the run, the one that matters first, and that of the loss."""
    shown = [metric for metric in history.metrics if metric.name != "loss"]
    return (
        *(
            Picture(title(metric), partial(metric_chart, metric), _caption(metric, history))
            for metric in shown
        ),
        Picture(
            "Loss",
            loss_chart,
            "Training loss that falls while test loss rises is overfitting; jumps hint at "
            "clients that pull the model in different directions.",
        ),
    )


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


COSTS = (
    Picture("Bytes in each round", bytes_chart, _bytes_caption),
    Picture("Time of each round", seconds_chart, _seconds_caption),
)
