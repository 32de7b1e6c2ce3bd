"""What went wrong: failures, late and quarantined replies, and clients that are slow."""

from collections import Counter, defaultdict
from statistics import median

from ...core.log.events import Exchanged, ReplySeconds
from .axes import layers_chart, lines_chart
from .history import History
from .hover import over_lines
from .svg import BAD, FIRST, SECOND, THIRD, Axes, Picture, Plot

FATES = {"failed": BAD, "late": SECOND, "quarantined": THIRD}


def troubles_chart(history: History) -> Plot | None:
    """Draw what went wrong in each round, by what became of it."""
    counts = Counter((problem.round, problem.fate) for problem in history.problems)
    known = [*history.chosen, *(current for current, _ in counts)]
    if not counts:
        return None
    rounds = range(min(known), max(known) + 1)
    layers = [(fate, tint, [counts[r, fate] for r in rounds]) for fate, tint in FATES.items()]

    def count(axes: Axes) -> None:
        axes.locator_params(axis="y", integer=True)

    return layers_chart("troubles", "requests per round", rounds, layers, then=count)


def reply_times(history: History) -> dict[int, ReplySeconds]:
    """Return how long replies took in each round, where it is known whose were slowest."""
    notes = history.noted(Exchanged)
    times = {current: events[-1].reply_seconds for current, events in notes.items()}
    return {current: told for current, told in times.items() if told and told.slowest}


def slow_chart(history: History) -> Plot | None:
    """Draw how long replies took in each round: the median and the slowest."""
    times = reply_times(history)
    lines = [
        ("slowest reply", SECOND, {r: max(told.slowest.values()) for r, told in times.items()}),
        ("median", FIRST, {r: told.median for r, told in times.items()}),
    ]
    return lines_chart("slow", "seconds", lines, over_lines("s"), lambda a: a.set_ylim(bottom=0))


def slow_clients(history: History) -> list[tuple[str, int, float, float]]:
    """Return who was among the slowest of a round: how often, usual seconds, times the median."""
    seconds, ratios = defaultdict(list), defaultdict(list)
    for told in reply_times(history).values():
        for client, value in told.slowest.items():
            seconds[client].append(value)
            ratios[client].append(value / told.median if told.median else 1.0)
    rows = [(c, len(v), median(v), median(ratios[c])) for c, v in seconds.items()]
    return sorted(rows, key=lambda row: (-row[1], -row[2]))


PICTURES = (
    Picture(
        "What went wrong in each round",
        troubles_chart,
        "Requests that failed, came late or whose reply was set aside (quarantined). A constant "
        "level points to some clients, which the table below names with the reasons; a sudden rise "
        "to the network or the server.",
    ),
    Picture(
        "How long replies took",
        slow_chart,
        "The gap between the lines is how long a round waits for its slowest client: "
        "<code>round.over-commit</code> or a selector that knows speeds (<code>oort</code>) "
        "closes it.",
    ),
)
