"""Who is like whom: the last similarities, ordered by cluster, and the donors they rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import AlignmentFound, SimilarityFound
from .axes import BLUE, MOST_NAMED, shades
from .cohort_tree import CohortDescent
from .formatting import natural_order, shorten
from .history import History
from .hover import over_cells
from .html_page import fold, left_out, sortable_table, text
from .svg import INK, Axes, Picture, Plot, draw

NO_CLUSTER = "-1"  # the label of a client that belongs nowhere


@dataclass(frozen=True)
class Likeness:
    """Similarities of clients that are in the order of their clusters."""

    round: int  # when they were computed
    # clients, clusters: name and cluster of each row; an empty cluster where none is known
    clients: list[str]
    clusters: list[str]
    matrix: NDArray[np.float64]  # one row and one column per client


def last_likeness(history: History) -> Likeness | None:
    """Return the last similarities that the run logged, if they make sense."""
    event = history.last(SimilarityFound)
    if event is None or event.round is None or not event.clients:
        return None
    matrix = matrix_of(event)
    if matrix is None:
        return None
    keys = event.clients
    labels = [event.labels.get(key, "") for key in keys]
    clusters = ["" if label == NO_CLUSTER else label for label in labels]
    order = sorted(
        range(len(keys)), key=lambda i: (natural_order(clusters[i]), natural_order(keys[i]))
    )
    return Likeness(
        event.round,
        [history.name_of(keys[i]) for i in order],
        [clusters[i] for i in order],
        matrix[np.ix_(order, order)],
    )


def matrix_of(event: SimilarityFound) -> NDArray[np.float64] | None:
    """Return the similarities, 0 where one is unknown; None if they do not fit the clients."""
    count = len(event.clients)
    if [len(row) for row in event.matrix] != [count] * count:
        return None
    return np.array([[value or 0.0 for value in row] for row in event.matrix], dtype=np.float64)


def similarity_chart(history: History) -> Plot | None:
    """Draw the matrix, with lines between the clusters."""
    likeness = last_likeness(history)
    if likeness is None or len(likeness.clients) < 2:
        return None
    tree = CohortDescent(history)
    clusters = [tree.shown(name) for name in likeness.clusters]
    starts = [i for i, name in enumerate(clusters) if i == 0 or name != clusters[i - 1]]
    pairs = likeness.matrix[~np.eye(len(clusters), dtype=bool)]
    low, high = float(pairs.min()), float(pairs.max())
    pixels = shades(np.clip((likeness.matrix - low) / ((high - low) or 1.0), 0, 1), BLUE)

    def paint(axes: Axes) -> None:
        axes.imshow(pixels, aspect="equal", interpolation="none")
        for start in starts[1:]:
            axes.axhline(start - 0.5, color=INK, lw=0.6)
            axes.axvline(start - 0.5, color=INK, lw=0.6)
        if len(starts) > 1:
            ends = [*starts[1:], len(clusters)]
            middles = [(a + b - 1) / 2 for a, b in zip(starts, ends, strict=True)]
            _name(axes, "clients, by cluster", middles, [clusters[i] or "none" for i in starts])
        else:
            _name(axes, "clients", list(range(len(clusters))), likeness.clients)

    rows = [
        shorten(f"{key} ({cluster})" if cluster else key, 24)
        for key, cluster in zip(likeness.clients, clusters, strict=True)
    ]
    return draw("similarity", 4.2, paint, over_cells(rows, rows, likeness.matrix, parts=100))


def _name(axes: Axes, what: str, places: Sequence[float], names: Sequence[str]) -> None:
    """Name both axes, and places on them as far as there is room."""
    axes.set(xlabel=what, ylabel=what, xticks=[], yticks=[])
    if len(names) <= MOST_NAMED:
        shown = [shorten(name, 10) for name in names]
        axes.set_yticks(places, shown)
        axes.set_xticks(places, shown, rotation=90 if sum(map(len, shown)) > 40 else 0)


def similarity_sentence(history: History) -> str:
    """Say how much more alike clients of one cluster are than others."""
    likeness = last_likeness(history)
    if likeness is None or len(set(likeness.clusters)) < 2:
        return ""
    names = np.array(likeness.clusters)
    same, pairs = names[:, None] == names, ~np.eye(len(names), dtype=bool)
    if not (same & pairs).any():
        return ""
    within, between = likeness.matrix[same & pairs].mean(), likeness.matrix[~same].mean()
    return (
        f"In round {likeness.round} two clients of one cluster had a similarity of {within:.2f} "
        f"on average, two of different ones {between:.2f}: the further apart, the clearer the "
        "clusters."
    )


MOST_TARGETS = 50
DONORS = 5

_NOTE = (
    "For each client, the others in the order of their similarity: their models, or their data if "
    "they could be shared, are likeliest to help it. The similarity is in brackets."
)
_AGREEMENT = (
    "Kendall's tau: how far this order agrees with that of the label histograms, and with the "
    "value of each donor's data to the client (KNN-Shapley): 1 is the same order, 0 is chance."
)


def donors_section(history: History) -> str:
    """Return the ranking as HTML, or nothing where no similarities were logged."""
    event = history.last(SimilarityFound)
    matrix = None if event is None else matrix_of(event)
    if event is None or matrix is None or len(event.clients) < 2:
        return ""
    clients = [history.name_of(key) for key in event.clients]
    known = history.last(AlignmentFound) or AlignmentFound()
    taus = [
        dict(zip(map(history.name_of, known.clients), values, strict=False))
        for values in (known.tau_labels, known.tau_shapley)
    ]
    head = ["client", "donors, the most similar first"]
    head += ["tau, labels", "tau, KNN-Shapley"] if any(taus) else []
    rows = []
    for place, key in list(enumerate(clients))[:MOST_TARGETS]:
        known_taus = [tau.get(key) for tau in taus] if any(taus) else []
        more = [("" if tau is None else f"{tau:.2f}", tau) for tau in known_taus]
        ranking = _ranking(clients, matrix[place], place)
        words = f'<span class="words">{ranking}</span>'
        rows.append(("", [(text(key, 40), key), (words, None), *more]))
    rest = left_out(len(clients) - len(rows), "clients")
    notes = _NOTE + (f" {_AGREEMENT}" if any(taus) else "")
    shown = f'<p class="note">{notes}</p>{_scores(known)}{sortable_table(head, rows)}{rest}'
    return fold("Donors: who could help whom", shown)


def _ranking(clients: Sequence[str], row: NDArray[np.float64], own: int) -> str:
    order = sorted((i for i in range(len(clients)) if i != own), key=lambda i: -row[i])
    return ", ".join(f"{text(clients[i], 40)} ({row[i]:.2f})" for i in order[:DONORS])


def _scores(event: AlignmentFound) -> str:
    """Return how well the similarities agree with the truth, where an analysis has added that."""
    pairs = event.scores.items()
    told = [f"{escape(name)} {value:.3f}" for name, value in pairs if value is not None]
    return f'<p class="note">Against the truth: {", ".join(told)}.</p>' if told else ""


PICTURES = (
    Picture(
        "Who is like whom",
        similarity_chart,
        "Each client has a row and a column, in the order of clusters; a stronger colour means "
        "more similar, from the least to the most similar pair. Strong squares along the diagonal "
        "are distinct clusters; strong spots outside: clients that may be in the wrong cluster.",
    ),
)
