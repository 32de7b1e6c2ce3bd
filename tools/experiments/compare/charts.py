"""The pictures of a comparison, drawn as those of a run's report are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....core.methods.catalogue import presets
from ....core.tasks.metrics import Metric, label
from ...report.axes import legend, metric_axis
from ...report.formatting import byte_unit
from ...report.hover import lines_at
from ...report.svg import INK, SERIES, Axes, Plot, draw
from .schema import Curve, Document

HEIGHT = 3.0
FEW_DECADES = 200.0
SEEDS_OF_A_BAND = 3  # the interval of fewer is so wide that it fills the picture
WIDE = 5.0  # a cost that differs by more between strategies is drawn in logarithms
_DASHES = ["-", (0, (4, 1.5)), (0, (1, 1.2))]
AXIS_TITLES = {"rounds": "round", "bytes": "bytes", "work": "clients' processor time, s"}


def looks(names: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """Return colour and dashes of each strategy: those of a preset are the same everywhere."""
    fixed = list(presets())
    places = {name: fixed.index(name) for name in fixed}
    for name in names:
        places.setdefault(name, len(places))
    return {
        name: (SERIES[place % len(SERIES)], _DASHES[place // len(SERIES) % len(_DASHES)])
        for name, place in places.items()
    }


def curves(document: Document, axis: str) -> Plot:
    """Draw the metric over rounds, bytes or work: a line per strategy, with bands for finalists."""
    metric, known = document.judged_by, document.curves
    totals = [curve.on(axis)[-1] for curve in known.values()]
    unit, size = byte_unit(max(totals, default=1.0)) if axis == "bytes" else ("", 1.0)
    costly = [total for total in totals if total > 0]
    wide = axis != "rounds" and bool(costly) and max(costly) > WIDE * min(costly)
    lines = {name: _Line.of(curve, axis, size, metric, wide) for name, curve in known.items()}
    ends = {s.name for s in document.strategies if s.to_the_end}

    def paint(axes: Axes) -> None:
        look = looks(s.name for s in document.strategies)
        bands = len(document.seeds) >= SEEDS_OF_A_BAND
        for name in lines:
            _paint_line(axes, lines[name], name, look[name], name in ends, bands)
        if wide:
            _logarithmic(axes)
        else:
            axes.locator_params(axis="x", integer=axis == "rounds")
        axes.set(xlabel=AXIS_TITLES[axis] if not unit else f"{unit} sent", ylabel=label(metric))
        metric_axis(axes, metric)
        axes.grid(axis="y")
        legend(axes)

    def hover(axes: Axes) -> dict[str, Any]:
        points = {name: (line.x, line.mean) for name, line in lines.items()}
        x_unit = unit or {"rounds": "round", "work": "s"}[axis]
        y_unit, scale = ("%", 100) if metric.share else ("", 1)
        best_first = 1 if metric.higher_is_better else -1
        return lines_at(axes, points, x_unit, y_unit, scale, ranked=best_first)

    return draw(axis, HEIGHT + 0.12 * math.ceil(len(lines) / 3), paint, hover)


@dataclass(frozen=True)
class _Line:
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, curve: Curve, axis: str, size: float, metric: Metric, wide: bool) -> "_Line":
        start = 1 if wide and not curve.on(axis)[0] else 0  # zero has no logarithm
        low, high = curve.low[start:], curve.high[start:]
        if metric.share:  # an interval may leave [0, 1], a share may not
            low, high = [max(0.0, v) for v in low], [min(1.0, v) for v in high]
        x = [value / size for value in curve.on(axis)[start:]]
        return cls(x, curve.mean[start:], low, high)


def _paint_line(
    axes: Axes, line: _Line, name: str, look: tuple[str, Any], to_the_end: bool, bands: bool
) -> None:
    tint, dashes = look
    width = 1.8 if to_the_end else 0.9
    axes.plot(line.x, line.mean, color=tint, linestyle=dashes, linewidth=width, label=name)
    if not to_the_end:
        axes.plot(line.x[-1:], line.mean[-1:], color=tint, marker="x", markersize=4)
    elif bands and not any(map(math.isnan, line.low)):
        axes.fill_between(line.x, line.low, line.high, color=tint, alpha=0.18, lw=0)


def _logarithmic(axes: Axes) -> None:
    """Draw costs in logarithms, with numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    subs = (1, 2, 5) if high < FEW_DECADES * low else (1,)  # as many numbers as fit
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def gaps(document: Document) -> Plot | None:
    """Draw the differences to the best strategy with their intervals: one row per strategy."""
    others = [s for s in document.strategies if s.against and s.against["rounds"].count]
    if not others:
        return None
    places = {"rounds": ("o", -0.2), "bytes": ("s", 0.0), "work": ("^", 0.2)}
    look, metric = looks(s.name for s in document.strategies), document.judged_by
    scale, most = (100.0, 1.0) if metric.share else (1.0, math.inf)

    def paint(axes: Axes) -> None:
        for axis, (marker, shift) in places.items():
            for row, strategy in enumerate(others):
                gap, tint = strategy.against[axis], look[strategy.name][0]
                # Shares differ by at most 1, however wide the interval of a few seeds
                ends = [scale * max(-most, gap.low), scale * min(most, gap.high)]
                axes.plot(ends, [row + shift] * 2, color=tint, lw=1.4)
                place = [scale * gap.mean], [row + shift]
                axes.plot(*place, color=tint, marker=marker, markersize=3.5)
            axes.plot([], [], color=INK, marker=marker, linestyle="", label=f"equal {axis}")
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(others)), [s.name for s in others])
        axes.set_ylim(len(others) - 0.5, -0.5)
        name = f"points of {label(metric)}" if metric.share else label(metric)
        axes.set_xlabel(f"{name} against {document.best}")
        axes.grid(axis="x")
        legend(axes)

    return draw("gaps", 1.0 + 0.34 * len(others), paint)
