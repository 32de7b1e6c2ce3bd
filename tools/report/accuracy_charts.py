"""How well the model does: accuracy and loss over rounds."""

from typing import TYPE_CHECKING

from .axes import HEIGHT, finish, line, percent_axis
from .history import History
from .hover import over_lines
from .picture import Picture
from .svg import FIRST, SECOND, THIRD, Plot, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def accuracy_chart(history: History) -> Plot | None:
    """Draw accuracy over rounds: on the server, and the clients' mean with its spread."""
    if not (history.series("accuracy")[0] or history.series("clients-accuracy-mean")[0]):
        return None

    def paint(axes: "Axes") -> None:
        line(axes, history, "accuracy", "server's test", FIRST)
        line(axes, history, "clients-accuracy-mean", "clients' mean", SECOND)
        worst = dict(zip(*history.series("clients-accuracy-worst-10"), strict=True))
        best = dict(zip(*history.series("clients-accuracy-best-10"), strict=True))
        both = sorted(worst.keys() & best.keys())
        if both:
            low, high = [worst[r] for r in both], [best[r] for r in both]
            label = "worst to best 10 %"
            width = 0 if len(both) > 1 else 4  # an area over a single round has no width
            axes.fill_between(both, low, high, color=SECOND, alpha=0.3, lw=width, label=label)
        percent_axis(axes)
        finish(axes, "accuracy")

    return draw("accuracy", HEIGHT, paint, over_lines("%", 100))


def loss_chart(history: History) -> Plot | None:
    """Draw loss over rounds: test, training, clients."""
    lines = [
        ("loss", "server's test", FIRST),
        ("train-loss", "training", SECOND),
        ("clients-loss-mean", "clients' mean", THIRD),
    ]
    if not any(history.series(column)[0] for column, _, _ in lines):
        return None

    def paint(axes: "Axes") -> None:
        for column, label, colour in lines:
            line(axes, history, column, label, colour)
        finish(axes, "loss")

    return draw("loss", HEIGHT, paint, over_lines(""))


PICTURES = (
    Picture(
        "Accuracy",
        accuracy_chart,
        "Look for a curve that still rises at the end (more rounds would help) or falls back. "
        "A wide band means that the model serves some clients far better than others.",
    ),
    Picture(
        "Loss",
        loss_chart,
        "Training loss that falls while test loss rises is overfitting; jumps hint at "
        "clients that pull the model in different directions.",
    ),
)
