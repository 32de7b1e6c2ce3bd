"""Clients in numbers: who trained when, who contributed how much, what went wrong, who is slow."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from html import escape

from ...core.log.events import ClassesSpread, Contributed
from ...selectors.diagnosis.skew import label_skew, quantity_skew
from .formatting import data_size, percent
from .history import History
from .html_page import folded_table, left_out, text
from .trouble_charts import slow_clients

MOST_PROBLEMS = 200
FEW_PROBLEMS = 10  # that need not be unfolded
MOST_CLIENTS = 1000
_ASKED = {"train": "training", "evaluate": "evaluation"}
_FATES = {"failed": "failed", "late": "late", "quarantined": "set aside"}
SHARE, VALUE = "share of the change", "loss spared"
_WRITTEN = {"bytes up": data_size, SHARE: percent, "usual reply in s": "{:.3g}".format}
_NOTE = (
    "The share of the change is a client's part of the mean updates, measured along them. All "
    "shares add up to 100 %; a client that pulls against the others has a negative share. It shows "
    "how much a client moved the model, not how much better the model became; the loss spared "
    "(leave-one-out) does: the server's loss of each round's mean without the client's update, "
    "minus the loss with it, summed over rounds. "
    "clients.csv holds this table."
)


@dataclass
class Contribution:
    """What the updates of a client were, over all rounds that took them."""

    rounds: int = 0
    samples: float = 0.0
    bytes_up: int = 0
    norms: float = 0.0
    share: float = 0.0  # of all changes of the model
    value: float | None = None  # by which the server's loss was lower for its updates


def contributions(history: History) -> dict[str, Contribution]:
    """Return who contributed how much; empty for a log that does not say."""
    found: dict[str, Contribution] = defaultdict(Contribution)
    noted = [event for events in history.noted(Contributed).values() for event in events]
    for event in noted:
        known = zip(event.clients, event.bytes_up, strict=False)
        for place, (client, sent) in enumerate(known):
            own = found[client]
            own.rounds += 1
            own.bytes_up += sent
            for name in ("samples", "norms"):
                numbers = getattr(event, name)
                number = numbers[place] if place < len(numbers) else None
                setattr(own, name, getattr(own, name) + (number or 0.0))
            share = event.shares[place] if place < len(event.shares) else None
            own.share += (share or 0.0) / len(noted)
            value = event.values[place] if place < len(event.values) else None
            own.value = own.value if value is None else (own.value or 0.0) + value
    return dict(found)


def client_rows(history: History) -> list[dict[str, float | str | None]]:
    """Return what is known of each client, under the titles of the table."""
    last = {key: number for number in sorted(history.chosen) for key in history.chosen[number]}
    trouble = Counter(problem.client for problem in history.problems)
    counts, waits = history.times_chosen(), history.ages().max(axis=1, initial=0)
    given = contributions(history)
    valued = any(own.value is not None for own in given.values())
    slow = {client: (often, seconds) for client, often, seconds, _ in slow_clients(history)}
    rows: list[dict[str, float | str | None]] = []
    for key, wait in zip(history.clients, waits.tolist(), strict=True):
        row: dict[str, float | str | None] = {
            "client": history.name_of(key),
            "times chosen": counts[key],
            "last in round": last.get(key),
            "longest wait": wait,
            "troubles": trouble[key],
        }
        if given:
            own = given.get(key, Contribution())
            each = max(1, own.rounds)
            row |= {"updates taken": own.rounds, "samples a round": round(own.samples / each, 1)}
            row |= {"bytes up": own.bytes_up, "norm of an update": _digits(own.norms / each)}
            row[SHARE] = _digits(own.share)
            if valued:
                row[VALUE] = None if own.value is None else _digits(own.value)
        if slow:
            often, seconds = slow.get(key, (0, None))
            usual = None if seconds is None else _digits(seconds)
            row |= {"times among the slowest 3": often, "usual reply in s": usual}
        rows.append(row)
    return rows


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def clients_table(history: History) -> str:
    """Return every client that was chosen: how often, how long it waited, what it contributed."""
    rows = client_rows(history)
    if not rows:
        return ""
    shown = rows[:MOST_CLIENTS]
    cells = [[(_cell(title, value), value) for title, value in row.items()] for row in shown]
    known = SHARE in rows[0]
    more = left_out(len(rows) - MOST_CLIENTS, "clients")
    more += f'<p class="note">{_NOTE}</p>' if known else ""
    what = "who contributed how much" if known else "in numbers"
    return folded_table(f"Every client that was chosen: {what}", rows[0], cells, more)


def _cell(title: str, value: float | str | None) -> str:
    if value is None:
        return "never" if title == "last in round" else "-"
    return _WRITTEN[title](value) if title in _WRITTEN else text(f"{value}", 80)  # type: ignore[arg-type]


def skew_sentence(history: History) -> str:
    """Say how uneven the clients' data are, in numbers, from what is known of them."""
    held, given = history.last(ClassesSpread), contributions(history)
    if held is not None and any(map(any, held.counts)):
        return (
            f"Skew of the clients' data: labels {label_skew(held.counts):.2f} (how far a client's "
            "classes are from all, 0 to 1), quantity "
            f"{quantity_skew(list(map(sum, held.counts))):.2f} (Gini's index of samples, 0 to 1)."
        )
    samples = [own.samples / own.rounds for own in given.values()]
    if len(samples) < 2 or not any(samples):
        return ""
    return (
        f"Skew of the clients' data: quantity {quantity_skew(samples):.2f} (Gini's index of the "
        "samples of those that trained, 0 to 1); that of labels is not known, since clients do "
        "not report their classes."
    )


def problems_table(history: History) -> str:
    """Return what failed, came late or was set aside: who, why, how often."""
    if not history.problems:
        return ""
    rounds: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for problem in history.problems:
        what = f"{_ASKED.get(problem.kind, problem.kind)} {_FATES[problem.fate]}"
        rounds[history.name_of(problem.client), what, problem.reason].append(problem.round)
    most_often = sorted(rounds.items(), key=lambda item: -len(item[1]))
    rows = [
        [
            (text(client, 80), client),
            (text(what, 60), what),
            (f'<span class="words">{text(reason, 300)}</span>', reason[:300]),
            (str(len(when)), len(when)),
            (f'<span class="words">{escape(_rounds(when))}</span>', min(when)),
        ]
        for (client, what, reason), when in most_often[:MOST_PROBLEMS]
    ]
    head = ("client", "what", "reason", "times", "in rounds")
    more = left_out(len(most_often) - MOST_PROBLEMS, "rows")
    shown = folded_table("Failures and replies that were set aside: who and why", head, rows, more)
    few = len(most_often) <= FEW_PROBLEMS
    return shown.replace("<details>", "<details open>", 1) if few else shown


def _rounds(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, …"
