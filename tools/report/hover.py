"""What a picture can say about the place that the pointer is at; `page.md` reads it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.tasks.metrics import Metric
from .svg import Axes

Hover = Callable[[Axes], dict[str, Any]]
Points = tuple[Sequence[float], Sequence[float]]


def frame(axes: Axes) -> dict[str, Any]:
    """Return where the axes lie, in shares of the picture from its top left, and their limits."""
    box = axes.get_position()
    return {
        "box": shortened((box.x0, 1 - box.y1, box.x1, 1 - box.y0)),
        "x": shortened(axes.get_xlim()),
        "y": shortened(axes.get_ylim()),
    }


def over_lines(unit: str, scale: float = 1.0) -> Hover:
    """Show the values of all lines and layers that have a label, at the pointer's round."""
    return lambda axes: lines_at(axes, _labelled(axes), "round", unit, scale)


def over_metric(metric: Metric) -> Hover:
    """Show the values of a metric: shares in per cent."""
    return over_lines("%", 100) if metric.share else over_lines("")


def lines_at(
    axes: Axes,
    lines: Mapping[str, Points],
    x_unit: str,
    y_unit: str,
    scale: float = 1.0,
    *,
    ranked: int = 0,
) -> dict[str, Any]:
    """Return what the pointer reads off lines; `ranked`: 1 highest first, -1 lowest, 0 as given."""
    return frame(axes) | {
        "log": axes.get_xscale() == "log",
        "xUnit": x_unit,
        "yUnit": y_unit,
        "ranked": ranked,
        "lines": {
            name: [shortened(x), shortened(scale * np.asarray(y, dtype=np.float64))]
            for name, (x, y) in lines.items()
        },
    }


def over_cells(
    rows: Sequence[str],
    columns: Sequence[str],
    values: NDArray[Any],
    parts: int = 1,
    names: Sequence[str] = (),
) -> Hover:
    """Show the cell under the pointer: multiples of 1 / `parts`, or numbers of `names`."""

    def hover(axes: Axes) -> dict[str, Any]:
        cells = np.rint(parts * values).astype(int).tolist()
        kind = {"names": list(names)} if names else {"parts": parts}
        return frame(axes) | {"rows": list(rows), "columns": list(columns), "values": cells} | kind

    return hover


def shortened(values: Any, digits: int = 5) -> list[float]:
    """Return numbers with as many digits as can be seen."""
    rounded = [float(f"{float(value):.{digits}g}") for value in values]
    return [int(value) if value == int(value) else value for value in rounded]


def _labelled(axes: Axes) -> dict[str, Points]:
    """Return the lines, and the layers of stacks by their own heights."""
    from matplotlib.patches import StepPatch

    found: dict[str, Points] = {}
    for line in axes.get_lines():
        found[str(line.get_label())] = (line.get_xdata(), line.get_ydata())  # type: ignore[assignment]
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            top, edges, base = patch.get_data()
            middles = (np.asarray(edges)[1:] + np.asarray(edges)[:-1]) / 2
            own = np.asarray(top) - (0 if base is None else np.asarray(base))
            drawn = np.isfinite(own)  # a layer need not be there all the time
            found[str(patch.get_label())] = (middles[drawn], own[drawn])
    return {label: points for label, points in found.items() if not label.startswith("_")}
