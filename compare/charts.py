"""The pictures of a comparison, drawn as those of a run's report are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server_app.report.svg import INK, draw
from server_app.report.wording import byte_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 3.0
COLOURS = 10  # that the page has; strategies beyond that share them
WIDE = 5.0  # a cost that differs by more between strategies is drawn in logarithms
_DASHES = ["-", (0, (4, 1.5)), (0, (1, 1.2))]
AXIS_TITLES = {"rounds": "round", "bytes": "bytes", "work": "clients' processor time, s"}


@dataclass(frozen=True)
class Plot:
    """A picture, and what the page needs to say what is under the pointer."""

    svg: str
    hover: dict[str, Any]


def colour(position: int) -> str:
    """Return the stand-in for a strategy's colour, which `themed` replaces by the page's."""
    return f"#0202{position % COLOURS:02x}"


def themed(svg: str) -> str:
    """Put the page's colours into a picture.

    >>> themed('stroke: #020203')
    'stroke: var(--s3)'
    """
    for position in range(COLOURS):
        svg = svg.replace(colour(position), f"var(--s{position})")
    return svg


def curves(document: Mapping[str, Any], axis: str) -> Plot:
    """Draw accuracy over rounds, bytes or work: a line a strategy, with bands for finalists."""
    known = {name: curve for name, curve in document["curves"].items() if curve}
    size, unit = _unit(known, axis)
    wide = axis != "rounds" and _is_wide([curve[axis][-1] for curve in known.values()])
    lines = {n: _Line.of(curve, axis, size, skip=wide) for n, curve in known.items()}
    ends = {s["name"] for s in document["strategies"] if s["to_the_end"]}
    kept: list[Axes] = []

    def paint(axes: "Axes") -> None:
        kept.append(axes)
        for position, name in enumerate(document["curves"]):
            if name in lines:
                _paint_line(axes, lines[name], name, position, name in ends)
        if wide:
            _logarithmic(axes)
        else:
            axes.locator_params(axis="x", integer=axis == "rounds")
        axes.set(xlabel=AXIS_TITLES[axis] if not unit else f"{unit} sent", ylabel="accuracy")
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")
        axes.grid(axis="y")
        axes.figure.legend(loc="outside upper left", ncols=3)

    svg = themed(draw(f"by-{axis}", HEIGHT + 0.12 * math.ceil(len(lines) / 3), paint))
    return Plot(svg, _hover(kept[0], lines, axis, unit, wide))


@dataclass(frozen=True)
class _Line:
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]

    @property
    def has_band(self) -> bool:
        """Whether there were several seeds; a single one has no interval."""
        return None not in self.low

    @classmethod
    def of(cls, curve: Mapping[str, Any], axis: str, size: float, *, skip: bool) -> "_Line":
        start = 1 if skip and not curve[axis][0] else 0  # zero has no logarithm
        mean, low, high = (curve[name][start:] for name in ("mean", "low", "high"))
        if None not in low:  # an interval knows nothing of 0 and 1, a share does
            low, high = [max(0.0, v) for v in low], [min(1.0, v) for v in high]
        return cls([value / size for value in curve[axis][start:]], mean, low, high)


def _paint_line(axes: "Axes", line: _Line, name: str, position: int, to_the_end: bool) -> None:
    dashes = _DASHES[position // COLOURS % len(_DASHES)]
    width = 1.8 if to_the_end else 0.9
    axes.plot(
        line.x, line.mean, color=colour(position), linestyle=dashes, linewidth=width, label=name
    )
    if not to_the_end:
        axes.plot(line.x[-1:], line.mean[-1:], color=colour(position), marker="x", markersize=4)
    elif line.has_band:
        axes.fill_between(line.x, line.low, line.high, color=colour(position), alpha=0.18, lw=0)


def _logarithmic(axes: "Axes") -> None:
    """Draw costs in logarithms, with numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _unit(curves_by_name: Mapping[str, Any], axis: str) -> tuple[float, str]:
    if axis != "bytes":
        return 1.0, ""
    largest = max((curve[axis][-1] for curve in curves_by_name.values()), default=1.0)
    unit, size = byte_unit(largest)
    return size, unit


def _is_wide(totals: Sequence[float]) -> bool:
    known = [total for total in totals if total > 0]
    return bool(known) and max(known) > WIDE * min(known)


def _hover(
    axes: "Axes", lines: Mapping[str, _Line], axis: str, unit: str, wide: bool
) -> dict[str, Any]:
    """Return where the axes lie in the picture, as shares of it from the top left, and the data."""
    box = axes.get_position()
    return {
        "box": [_short(v) for v in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)],
        "x": [_short(v) for v in axes.get_xlim()],
        "log": wide,
        "unit": unit or {"rounds": "rounds", "work": "s"}[axis],
        "lines": {
            name: [[_short(v) for v in line.x], [_short(v) for v in line.mean]]
            for name, line in lines.items()
        },
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def gaps(document: Mapping[str, Any]) -> str:
    """Draw the differences to the best strategy with their intervals: a row a strategy."""
    others = [s for s in document["strategies"] if s["against"].get("rounds", {}).get("count")]
    if not others:
        return ""
    places = {"rounds": ("o", -0.2), "bytes": ("s", 0.0), "work": ("^", 0.2)}
    positions = {name: i for i, name in enumerate(document["curves"])}

    def paint(axes: "Axes") -> None:
        for axis, (marker, shift) in places.items():
            for row, strategy in enumerate(others):
                _paint_gap(axes, strategy, axis, marker, row + shift, positions)
            axes.plot([], [], color=INK, marker=marker, linestyle="", label=f"equal {axis}")
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(others)), [s["name"] for s in others])
        axes.set_ylim(len(others) - 0.5, -0.5)
        axes.set_xlabel(f"points of accuracy against {document['best']}")
        axes.grid(axis="x")
        axes.figure.legend(loc="outside upper left", ncols=3)

    return themed(draw("gaps", 1.0 + 0.34 * len(others), paint))


def _paint_gap(
    axes: "Axes",
    strategy: Mapping[str, Any],
    axis: str,
    marker: str,
    height: float,
    positions: Mapping[str, int],
) -> None:
    gap = strategy["against"][axis]
    if gap["mean"] is None:
        return
    tint = colour(positions[strategy["name"]])
    if gap["low"] is not None:
        axes.plot([100 * gap["low"], 100 * gap["high"]], [height, height], color=tint, lw=1.4)
    axes.plot([100 * gap["mean"]], [height], color=tint, marker=marker, markersize=3.5)
