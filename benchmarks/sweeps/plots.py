"""Curves of a sweep's results: the mean over seeds with a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...tools.experiments.records import SweepError
from ...tools.experiments.results import Results
from .tables import Spread


def plot_curves(
    results: Results,
    metric: str,
    path: Path,
    *,
    cells: Sequence[str] | None = None,
    spread: Spread = "interval",
) -> Path:
    """Draw a metric over rounds, one curve per cell, to a PNG or SVG file.

    The band is the 95 % t-interval of the mean or the standard deviation; a cell with one seed
    has none. Only rounds that all of a cell's runs reached are drawn. The same results give the
    same SVG, byte for byte.
    """
    if path.suffix not in (".png", ".svg"):
        raise SweepError(f"plot file {path}: {path.suffix!r} is not allowed; use .png or .svg")
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for cell in cells or results.cells:
        rounds, points = results.curve(cell, metric)
        (line,) = axes.plot(rounds, [point.mean for point in points], label=cell)
        if spread == "std":
            low = [point.mean - point.std for point in points]
            high = [point.mean + point.std for point in points]
        else:
            low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="round", ylabel=metric)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = {"Date": None} if path.suffix == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "sweep"}):
        figure.savefig(path, dpi=150, metadata=stamp)
    return path
