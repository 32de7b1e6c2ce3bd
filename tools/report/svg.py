"""Drawing by matplotlib as SVG whose stand-in colours are replaced by the page's own."""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from .history import History

if TYPE_CHECKING:  # it is loaded only by what draws
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any

WIDTH_INCHES = 4.4

INK, FIRST, SECOND, THIRD, BAD = "#010101", "#010102", "#010103", "#010104", "#010105"
SERIES = tuple(f"#0202{position:02x}" for position in range(10))
PAGE_COLOURS = {
    INK: "currentColor",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
    BAD: "var(--bad)",
    **{colour: f"var(--s{position})" for position, colour in enumerate(SERIES)},
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a client's key may hold dollar signs
    "text.usetex": False,
    "text.color": INK,
    "font.size": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.borderpad": 0,
    "legend.handlelength": 1.2,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.1,
    "lines.linewidth": 1.6,
    "lines.markersize": 3,
}


@dataclass(frozen=True)
class Plot:
    """A picture, and what the page needs to say what is under the pointer (see `hover`)."""

    name: str
    svg: str
    hover: dict[str, Any] = field(default_factory=dict)


def draw(
    name: str,
    height: float,
    paint: Callable[[Axes], None],
    hover: Callable[[Axes], dict[str, Any]] | None = None,
) -> Plot:
    """Return the picture as an SVG element for a page."""
    import matplotlib  # here, since a run that makes no report need not wait for it
    from matplotlib.figure import Figure

    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The browser has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots()
        paint(axes)
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
        asked = hover(axes) if hover else {}
    return Plot(name, _embeddable(text.getvalue()), asked)


def _embeddable(svg: str) -> str:
    """Cut a stand-alone SVG file down to an element that takes its colours from the page."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", element, flags=re.DOTALL)
    element = re.sub(r'<svg [^>]*(viewBox="[^"]*")[^>]*>', r'<svg \1 aria-hidden="true">', element)
    element = re.sub(r'<g id="[^"]*"', "<g", element)
    element = re.sub(r' d="[^"]*"', _tenths, element)
    element = element.replace("xlink:href=", "href=")
    for stand_in, colour in PAGE_COLOURS.items():
        element = element.replace(stand_in, colour)
    return element


def _tenths(path: "re.Match[str]") -> str:
    """Round the coordinates of a path to what can be seen: most of a picture's bytes are these."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), path[0])


@dataclass(frozen=True)
class Picture:
    """One picture."""

    title: str  # above it
    # returns it for a run, or None where the run has nothing to show
    draw: Callable[[History], Plot | None]
    # says what to look for; HTML. A callable speaks only of what this run's picture shows
    caption: str | Callable[[History], str]

    def words(self, history: History) -> str:
        """Return the caption for a run."""
        return self.caption if isinstance(self.caption, str) else self.caption(history)


def figure(title: str, plot: Plot, caption: str) -> str:
    """Return a picture with its title and its caption, which is HTML already."""
    tip = '<div class="ruler" hidden></div><pre class="tip" hidden></pre>' if plot.hover else ""
    return (
        f'<figure><h3>{escape(title)}</h3><div class="plot" data-plot="{plot.name}">{plot.svg}'
        f"{tip}</div><figcaption>{caption}</figcaption></figure>\n"
    )


def swatch(colour: str) -> str:
    """Return a small square of a colour, for a caption."""
    return f'<span class="key" style="background:{colour}"></span>'
