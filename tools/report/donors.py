"""Who could help whom: each client's donors, ranked by similarity."""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import AlignmentFound, Number, SimilarityFound
from .history import History
from .similarity_charts import matrix_of
from .tables import table, text

MOST_TARGETS = 50
DONORS = 5

_NOTE = (
    "Other clients in the order of their similarity to each client: whose models, or data if they "
    "could be shared, are likeliest to help it. The similarity is in brackets."
)
_AGREEMENT = (
    "Kendall's tau says how far this order agrees with that of the label histograms, and with what "
    "each donor's data are worth to the client (KNN-Shapley): 1 is the same order, 0 is chance."
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
        more = [_tau(tau.get(key)) for tau in taus] if any(taus) else []
        rows.append((text(key, 40), _ranking(clients, matrix[place], place), *more))
    left = len(clients) - len(rows)
    rest = f'<p class="note">{left} more clients are in events.jsonl.</p>' if left > 0 else ""
    notes = _NOTE + (f" {_AGREEMENT}" if any(taus) else "")
    ranking = table(tuple(head), rows)
    return f'<h2>Donors</h2><p class="note">{notes}</p>{_scores(known)}{ranking}{rest}'


def _ranking(clients: Sequence[str], row: NDArray[np.float64], own: int) -> str:
    order = sorted((i for i in range(len(clients)) if i != own), key=lambda i: -row[i])
    return ", ".join(f"{text(clients[i], 40)} ({row[i]:.2f})" for i in order[:DONORS])


def _scores(event: AlignmentFound) -> str:
    """Return how well the similarities agree with the truth, where an analysis has added that."""
    pairs = event.scores.items()
    told = [f"{escape(name)} {value:.3f}" for name, value in pairs if value is not None]
    return f'<p class="note">Against the truth: {", ".join(told)}.</p>' if told else ""


def _tau(value: Number) -> str:
    return "" if value is None else f"{value:.2f}"
