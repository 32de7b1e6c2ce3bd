"""A picture of the report: what it is called, how it is drawn, and what to look for in it."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from .history import History
from .svg import Plot


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes
    ----------
    title : str
        Above it.
    draw : callable
        Returns it for a run, or None where the run has nothing to show.
    caption : str or callable
        Says what to look for; HTML. A callable speaks only of what this run's picture shows.
    """

    title: str
    draw: Callable[[History], Plot | None]
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
