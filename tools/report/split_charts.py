"""Why cohorts were split, or were not: the criterion over rounds."""

import math

from ...core.log.events import CohortsTrained
from .axes import HEIGHT, finish
from .cohort_tree import CohortTree
from .formatting import natural_order, shorten
from .history import History
from .hover import over_lines
from .picture import Picture
from .svg import INK, SERIES, Axes, Plot, draw

MOST_LINES = 12


def criterion(history: History) -> dict[str, dict[int, float]]:
    """Return the share of heterogeneity that a split would leave, by cohort and round.

    >>> event = {"event": "cohorts", "round": 3, "members": {"0": 9}, "heterogeneity": {"0": 0.8}}
    >>> criterion(History.from_events([event]))
    {'0': {3: 0.8}}
    """
    found: dict[str, dict[int, float]] = {}
    for current, events in history.noted(CohortsTrained).items():
        for cohort, value in (events[-1].heterogeneity or {}).items():
            if value is not None:
                found.setdefault(cohort, {})[current] = value
    return dict(sorted(found.items(), key=lambda item: natural_order(item[0])))


def split_chart(history: History) -> Plot | None:
    """Draw the criterion of each cohort, and what it must fall to."""
    found = criterion(history)
    if not found:
        return None
    cohorts = CohortTree(history).cohorts

    def paint(axes: Axes) -> None:
        lines = {
            name: cohorts[name].line if name in cohorts else place
            for place, name in enumerate(list(found)[:MOST_LINES])
        }
        heirs = {number: name for name, number in lines.items()}  # the last of each colour
        for name, number in lines.items():
            points = found[name]
            axes.plot(
                list(points),
                list(points.values()),
                color=SERIES[number % len(SERIES)],
                marker="o" if len(points) <= 50 else None,
                label=f"cohort {shorten(name, 14)}" if heirs[number] == name else "_before",
            )
        limit = _limit(history)
        if limit is not None:
            axes.axhline(
                limit, color=INK, linewidth=0.8, linestyle="--", label="enough for 2 parts"
            )
        axes.set_ylim(0, max(1.05, *(v for points in found.values() for v in points.values())))
        finish(axes, "heterogeneity left")

    return draw("split-criterion", HEIGHT, paint, over_lines(""))


def _limit(history: History) -> float | None:
    exponent = history.started.number(f"{_rule(history)}.split-exponent")
    return None if exponent is None else float(2.0**-exponent)


def _rule(history: History) -> str:
    """Return whose settings count: both ``auxo`` and ``split-test`` note the criterion."""
    return str(history.started.config.get("cohorts"))


def criterion_known(history: History) -> bool:
    """Return whether the run's cohorts are split by such a criterion at all."""
    return any(e[-1].heterogeneity is not None for e in history.noted(CohortsTrained).values())


def why_never_split(history: History) -> str:
    """Say what kept a run from splitting its one cohort, as far as its settings show."""
    number = history.started.number
    rounds = history.rounds_done
    rule = _rule(history)
    first, least = number(f"{rule}.first-split"), number(f"{rule}.min-participants")
    alpha = number(f"{rule}.alpha")
    trained = max((len(clients) for clients in history.chosen.values()), default=0)
    if first is not None and rounds < first:
        return f"{rule}.first-split = {first:g} is more than the {rounds} rounds of the run"
    if least is not None and trained < 2 * least:
        return (
            f"each part of a split needs {rule}.min-participants = {least:g} clients per "
            f"round, and {trained} trained"
        )
    if alpha is not None and trained / 2 < alpha * math.sqrt(trained):
        return (
            f"with {rule}.alpha = {alpha:g} each part of a split needs at least "
            f"{alpha * math.sqrt(trained):.1f} clients per round, and {trained} trained"
        )
    if not criterion(history):
        return f"{trained} clients per round are too few to look for clusters: let more train"
    return (
        "no split would have reduced heterogeneity enough for long enough. If you expect groups, "
        "let more clients train per round, or more rounds"
    )


PICTURES = (
    Picture(
        "Would a split pay?",
        split_chart,
        "How much of the heterogeneity of a cohort's updates would be left if it were split along "
        "its clusters. It must stay at or below the dashed line for some rounds in a row "
        "(split-rounds), and lower for more than two parts.",
    ),
)
