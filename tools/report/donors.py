"""Who could help whom: each client's donors, ranked by similarity."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .history import History
from .lenient import keys_in, number
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
    event = history.latest.get("similarity", {})
    clients, matrix = keys_in(event.get("clients")), _rows(event.get("matrix"))
    if len(clients) < 2 or [len(row) for row in matrix] != [len(clients)] * len(clients):
        return ""
    known = history.latest.get("alignment", {})
    taus = [_by_client(known, name) for name in ("tau-labels", "tau-shapley")]
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


def _ranking(clients: Sequence[str], row: Sequence[float], own: int) -> str:
    order = sorted((i for i in range(len(clients)) if i != own), key=lambda i: -row[i])
    return ", ".join(f"{text(clients[i], 40)} ({row[i]:.2f})" for i in order[:DONORS])


def _scores(event: Mapping[str, Any]) -> str:
    """Return how well the similarities agree with the truth, where an analysis has added that."""
    scores = event.get("scores")
    pairs = scores.items() if isinstance(scores, Mapping) else ()
    told = [
        f"{escape(str(name))} {value:.3f}" for name, value in pairs if number(value) is not None
    ]
    return f'<p class="note">Against the truth: {", ".join(told)}.</p>' if told else ""


def _by_client(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    values = event.get(name)
    keys = keys_in(event.get("clients"))
    return dict(zip(keys, values, strict=False)) if isinstance(values, list) else {}


def _tau(value: Any) -> str:
    return "" if number(value) is None else f"{value:.2f}"


def _rows(value: Any) -> list[list[float]]:
    rows = value if isinstance(value, list) else []
    return [[number(x) or 0.0 for x in row] if isinstance(row, list) else [] for row in rows]
