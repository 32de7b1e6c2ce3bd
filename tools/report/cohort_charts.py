"""With whom: cohorts as a tree that grows over rounds, how they do, and why they were split."""

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import CohortsTrained
from ...core.tasks.metrics import Metric, label, title, written
from ...selectors.cohorts.split import OF_LEMMA, WITHIN
from .axes import HEIGHT, edges, lines_chart, metric_axis, rounds_axis
from .cohort_tree import CohortBand, CohortDescent
from .formatting import natural_order, plural, shorten
from .history import History
from .hover import over_lines, over_metric
from .svg import INK, SERIES, Axes, Picture, Plot, draw

MOST_NAMED_COHORTS = 12


def tree_chart(history: History) -> Plot | None:
    """Draw the cohorts on top of each other, as wide as they have clients."""
    tree = CohortDescent(history)
    rounds = tree.rounds()
    if not rounds or len(tree.cohorts) < 2:  # one cohort is no picture
        return None
    cohorts = tree.bands()
    sizes = np.array([[c.sizes.get(r, 0.0) for r in rounds] for c in cohorts])
    tops = sizes.cumsum(axis=0)

    def paint(axes: Axes) -> None:
        for cohort, size, top in zip(cohorts, sizes, tops, strict=True):
            alive = size > 0
            axes.stairs(
                np.where(alive, top, np.nan),
                edges(rounds),
                baseline=np.where(alive, top - size, np.nan),
                fill=True,
                color=SERIES[cohort.line % len(SERIES)],
                alpha=0.75,
                lw=0,
                label=_label(cohort),
            )
        _name_bands(axes, history.metric, cohorts, sizes[:, -1], tops[:, -1])
        axes.set_ylabel("clients")
        axes.locator_params(axis="y", integer=True)
        axes.set_ylim(0, float(tops[-1].max()))
        axes.margins(x=0)
        rounds_axis(axes)

    return draw("cohorts", 3.4, paint, over_lines("clients"))


def _label(cohort: CohortBand) -> str:
    return f"cohort {shorten(cohort.name, 20)}"


def _name_bands(
    axes: Axes,
    metric: Metric,
    cohorts: list[CohortBand],
    sizes: NDArray[np.float64],
    tops: NDArray[np.float64],
) -> None:
    """Write name, size and last score beside the bands that are left at the end."""
    ends = [i for i in range(len(cohorts)) if sizes[i] > 0]
    for i in ends if len(ends) <= MOST_NAMED_COHORTS else ():
        scores = list(cohorts[i].scores.values())
        text = f"{shorten(cohorts[i].name, 14)}: {sizes[i]:.0f}"
        text += f", {written(metric, scores[-1])}" if scores else ""
        beside = axes.get_yaxis_transform()
        axes.text(1.02, tops[i] - sizes[i] / 2, text, va="center", size=8.5, transform=beside)


def cohort_metric_chart(history: History) -> Plot | None:
    """Draw the main metric of each cohort's model; children begin where their parent ended."""
    tree, metric = CohortDescent(history), history.metric
    known = [cohort for cohort in tree.bands() if cohort.scores]
    if len(known) < 2:
        return None

    def paint(axes: Axes) -> None:
        lines = {}
        for cohort in known:
            points = _with_parent(tree, cohort)
            colour = SERIES[cohort.line % len(SERIES)]
            (line,) = axes.plot(*zip(*points.items(), strict=True), color=colour)
            line.set_label(_label(cohort))
            lines[cohort.name] = line
            axes.plot(list(points)[:1], list(points.values())[:1], color=colour, marker="o")
        metric_axis(axes, metric)
        axes.grid(axis="y")
        where = "on own data" if tree.on_clients else "on the server"
        axes.set_ylabel(f"{label(metric)} {where}")
        rounds_axis(axes)
        names = dict.fromkeys(tree.shown(cohort.name) for cohort in tree.last())
        left = [lines[name] for name in names if name in lines]
        if len(left) <= MOST_NAMED_COHORTS:
            axes.figure.legend(handles=left, loc="outside upper left", ncols=3)

    return draw("cohort-metric", HEIGHT, paint, over_metric(metric))


def _with_parent(tree: CohortDescent, cohort: CohortBand) -> dict[int, float]:
    parent = tree.cohorts.get(cohort.parent)
    first = min(cohort.scores)
    before = {r: a for r, a in parent.scores.items() if r < first} if parent else {}
    return {**({max(before): before[max(before)]} if before else {}), **cohort.scores}


def cohorts_sentence(history: History) -> str:
    """Say into how many cohorts the clients fell, and how these do."""
    tree = CohortDescent(history)
    last = tree.last()
    if not last:
        return ""
    sizes = [cohort.sizes[max(cohort.sizes)] for cohort in last]
    if len(last) == 1:
        if len(tree.cohorts) > 1:
            return f"All {sizes[0]:.0f} clients are in one cohort at the end."
        notes = history.noted(CohortsTrained).values()
        judged = any(events[-1].heterogeneity is not None for events in notes)
        why = f": {why_never_split(history)}" if judged else ""
        return f"All {sizes[0]:.0f} clients are in one cohort, which was never split{why}."
    each = f"{min(sizes):.0f} to {max(sizes):.0f}" if min(sizes) < max(sizes) else f"{sizes[0]:.0f}"
    text = f"The clients fell into {plural(len(last), 'cohort')} of {each} clients"
    scores = [c.scores[max(c.scores)] for c in last if c.scores]
    if len(scores) < 2:
        return f"{text}."
    metric = history.metric
    low, high = (written(metric, value) for value in (min(scores), max(scores)))
    return f"{text}; with their models {label(metric)} is {low} to {high}."


_OF_CLUSTERS = (
    "A line is a cohort, from the first round in which there were several. Clients are grouped "
    "again every few rounds; a cohort keeps its letter while most of its clients stay."
)


def _of_a_tree(better: str, worse: str) -> str:
    return (
        f"A line begins where its parent's line was at the split. Children that end {better} it "
        f"show that the split was worth it; one that stays {worse} has too few clients, or the "
        "wrong ones."
    )


def pictures(history: History) -> tuple[Picture, ...]:
    """Return the pictures of cohorts, in the words of the run's main metric."""
    metric = history.metric
    directions = ("above", "below") if metric.higher_is_better else ("below", "above")
    return (
        Picture(
            "How the cohorts grew",
            tree_chart,
            "Each band is a cohort; its width is the number of clients. After a split its children "
            f"take its place. At the right: name, clients, {label(metric)} of its model (on its "
            "clients' own data if they evaluate, else on the server's). Look for splits that last, "
            "and for bands that become thinner: cohorts that clients leave.",
        ),
        Picture(
            f"{title(metric)} of each cohort",
            cohort_metric_chart,
            _of_a_tree(*directions) if CohortDescent(history).named_by_descent else _OF_CLUSTERS,
        ),
    )


MOST_LINES = 12


def criterion(history: History) -> dict[str, dict[int, float]]:
    """Return the share of heterogeneity that a split would leave, by cohort and round."""
    found: dict[str, dict[int, float]] = {}
    for current, events in history.noted(CohortsTrained).items():
        for cohort, value in (events[-1].heterogeneity or {}).items():
            if value is not None:
                found.setdefault(cohort, {})[current] = value
    return dict(sorted(found.items(), key=lambda item: natural_order(item[0])))


def split_chart(history: History) -> Plot | None:
    """Draw the criterion of each cohort, and what it must fall to."""
    found, cohorts = criterion(history), CohortDescent(history).cohorts
    places = {
        name: cohorts[name].line if name in cohorts else place
        for place, name in enumerate(list(found)[:MOST_LINES])
    }
    heirs = {number: name for name, number in places.items()}  # the last of each colour
    lines = [
        (
            f"cohort {shorten(name, 14)}" if heirs[number] == name else "_before",
            SERIES[number % len(SERIES)],
            found[name],
        )
        for name, number in places.items()
    ]

    def beside(axes: Axes) -> None:
        limit = _limit(history)
        if limit is not None:
            words = "enough for 2 parts"
            axes.axhline(limit, color=INK, linewidth=0.8, linestyle="--", label=words)
        axes.set_ylim(0, max(1.05, *(v for points in found.values() for v in points.values())))

    return lines_chart("split-criterion", "heterogeneity left", lines, over_lines(""), beside)


def _limit(history: History) -> float | None:
    """Return the share that may be left by a split into two parts."""
    return {"auxo": 2.0**-OF_LEMMA, "split-test": WITHIN, "conflict-test": WITHIN}.get(
        str(history.started.config.get("cohorts"))
    )


def why_never_split(history: History) -> str:
    """Say what kept a run from splitting its one cohort, as its rule noted in the last round."""
    last = history.last(CohortsTrained)
    reasons = (last.reasons or {}) if last is not None else {}
    return next(iter(reasons.values()), "") or (
        "no split would have reduced heterogeneity enough for long enough. If you expect groups, "
        "let more clients train per round, or more rounds"
    )


SPLITS = (
    Picture(
        "Would a split pay?",
        split_chart,
        "The share of the heterogeneity of a cohort's updates that would remain after a split "
        "along its clusters. It must stay at or below the dashed line for several rounds in a row; "
        "with Auxo, the limit is lower for more than two parts.",
    ),
)
