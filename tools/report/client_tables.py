"""Clients in numbers: how often they were chosen, what went wrong with them, who is slow."""

from collections import Counter, defaultdict

from .history import History
from .tables import folded_table, text
from .trouble_charts import slow_clients

MOST_PROBLEMS = 200
FEW_PROBLEMS = 10  # that need not be unfolded
MOST_CLIENTS = 1000
MOST_SLOW = 20
_ASKED = {"train": "training", "evaluate": "evaluation"}
_FATES = {"failed": "failed", "late": "late", "quarantined": "set aside"}


def clients_table(history: History) -> str:
    """Return how often each client was chosen, and how long it waited."""
    if not history.clients:
        return ""
    last = {key: number for number in sorted(history.chosen) for key in history.chosen[number]}
    trouble = Counter(problem.client for problem in history.problems)
    counts = history.times_chosen()
    waits = history.ages().max(axis=1, initial=0)
    rows = []
    for key, wait in zip(history.clients[:MOST_CLIENTS], waits, strict=False):
        numbers = [counts[key], last.get(key), wait, trouble[key]]
        cells = [("never" if n is None else str(n), n) for n in numbers]
        rows.append([_client(history, key), *cells])
    head = ("client", "times chosen", "last in round", "longest wait", "troubles")
    more = _left_out(len(history.clients) - MOST_CLIENTS, "clients")
    return folded_table("Every client that was chosen, in numbers", head, rows, more)


def problems_table(history: History) -> str:
    """Return what failed, came late or was set aside: who, why, how often."""
    if not history.problems:
        return ""
    rounds: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for problem in history.problems:
        what = f"{_ASKED.get(problem.kind, problem.kind)} {_FATES[problem.fate]}"
        rounds[problem.client, what, problem.reason].append(problem.round)
    most_often = sorted(rounds.items(), key=lambda item: -len(item[1]))
    rows = [
        [
            _client(history, client),
            (text(what, 60), what),
            (f'<span class="words">{text(reason, 300)}</span>', reason[:300]),
            (str(len(when)), len(when)),
            (f'<span class="words">{_rounds(when)}</span>', min(when)),
        ]
        for (client, what, reason), when in most_often[:MOST_PROBLEMS]
    ]
    head = ("client", "what", "reason", "times", "in rounds")
    more = _left_out(len(most_often) - MOST_PROBLEMS, "rows")
    shown = folded_table("Failures and replies that were set aside: who and why", head, rows, more)
    few = len(most_often) <= FEW_PROBLEMS
    return shown.replace("<details>", "<details open>", 1) if few else shown


def slow_table(history: History) -> str:
    """Return who was among the slowest to reply."""
    slow = slow_clients(history)[:MOST_SLOW]
    if not slow:
        return ""
    rows = [
        [
            _client(history, client),
            (str(often), often),
            (f"{seconds:.3g} s", seconds),
            (f"{ratio:.1f}", ratio),
        ]
        for client, often, seconds, ratio in slow
    ]
    head = ("client", "times among the slowest", "usual reply", "times the round's median")
    return folded_table("Who was among the slowest three of a round", head, rows)


def _client(history: History, key: str) -> tuple[str, str]:
    """Return the cell of a client: its name, and what it sorts by."""
    return text(history.name_of(key), 80), history.name_of(key)


def _rounds(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown}, …"


def _left_out(count: int, what: str) -> str:
    return f'<p class="note">{count} more {what} are in events.jsonl.</p>' if count > 0 else ""
