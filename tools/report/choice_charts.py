"""Why clients were chosen: how similar they were and how long they had waited (CosAge)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...core.wire.events import Selected
from .axes import HEIGHT, finish
from .history import History
from .hover import over_lines
from .picture import Picture
from .svg import SERIES, Plot, draw
from .tables import sortable_table, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BINS = 10  # that have a colour of their own
BY_SIMILARITY = ("cosage", "dissimilarity", "dissimilarity-cooldown", "dissimilarity-sampling")


class Choice(NamedTuple):
    """A client that was chosen; bin 1 holds those that are least like the last global update."""

    client: str
    bin: int
    similarity: float
    age: int


def choices(history: History) -> dict[int, list[Choice]]:
    """Return who was chosen in each round and why, the least similar first.

    >>> event = {"event": "selected", "round": 2, "chosen": ["a", "b"], "ages": [1, 4],
    ...     "scores": [0.9, 0.2]}
    >>> config = {"client-selector": "cosage"}
    >>> log = [{"event": "run-started", "config": config}, event]
    >>> choices(History.from_events(log))[2][0]
    Choice(client='b', bin=1, similarity=0.2, age=4)
    """
    if history.started.config.get("client-selector") not in BY_SIMILARITY:
        return {}
    found: dict[int, list[Choice]] = {}
    for current, events in history.noted(Selected).items():
        for event in events:
            known = zip(event.chosen, event.scores or (), event.ages or (), strict=False)
            scored = sorted((score, key, age) for key, score, age in known if score is not None)
            found.setdefault(current, []).extend(
                Choice(key, place, score, age)
                for place, (score, key, age) in enumerate(scored, start=1)
            )
    return {current: chosen for current, chosen in found.items() if chosen}


def similarity_of_choices_chart(history: History) -> Plot | None:
    """Draw the similarity of the clients chosen, a line per bin."""
    found = choices(history)
    if not found:
        return None
    bins = range(1, min(MOST_BINS, max(len(chosen) for chosen in found.values())) + 1)

    def paint(axes: "Axes") -> None:
        for number in bins:
            points = _of_bin(found, number)
            axes.plot(
                list(points),
                list(points.values()),
                color=SERIES[(number - 1) % len(SERIES)],
                marker="o" if len(points) <= 50 else None,
                linewidth=0.8,
                label=f"bin {number}",
            )
        finish(axes, "similarity to the update")

    return draw("why-chosen", HEIGHT + 0.3, paint, over_lines(""))


def _of_bin(found: Mapping[int, list[Choice]], number: int) -> dict[int, float]:
    return {r: c.similarity for r, chosen in found.items() for c in chosen if c.bin == number}


def ages_of_choices_chart(history: History) -> Plot | None:
    """Draw how long the clients chosen had waited: the longest, the mean, the shortest."""
    found = choices(history)
    if not any(choice.age for chosen in found.values() for choice in chosen):
        return None

    def paint(axes: "Axes") -> None:
        rounds = list(found)
        ages = [[choice.age for choice in chosen] for chosen in found.values()]
        parts: list[tuple[str, list[float]]] = [
            ("longest", [max(own) for own in ages]),
            ("mean", [sum(own) / len(own) for own in ages]),
            ("shortest", [min(own) for own in ages]),
        ]
        for place, (name, values) in enumerate(parts):
            axes.plot(rounds, values, color=SERIES[place], label=f"{name} wait")
        finish(axes, "rounds since last chosen")

    return draw("ages-chosen", HEIGHT, paint, over_lines("rounds"))


def last_choice_table(history: History) -> str:
    """Return the last choice with the reason for each client."""
    found = choices(history)
    if not found:
        return ""
    last = max(found)
    rows = [
        (
            "",
            [
                (text(choice.client, 80), choice.client),
                (str(choice.bin), choice.bin),
                (f"{choice.similarity:.3f}", choice.similarity),
                (str(choice.age), choice.age),
            ],
        )
        for choice in found[last]
    ]
    head = ("client", "bin", "similarity", "rounds since last chosen")
    return (
        f"<details><summary>Why each client of round {last} was chosen</summary>"
        f"{sortable_table(head, rows)}</details>"
    )


PICTURES = (
    Picture(
        "Why they were chosen: similarity",
        similarity_of_choices_chart,
        "Clients are ranked by how similar their summary is to the last update of the global "
        "model. CosAge cuts the ranking into one bin per client to choose, bin 1 being the least "
        "similar, and takes from each bin the client that has waited longest. Lines that "
        "lie apart mean that different kinds of clients take part in every round.",
    ),
    Picture(
        "Why they were chosen: age",
        ages_of_choices_chart,
        "How many rounds the clients of each round had not been chosen before. A longest wait that "
        "keeps growing means that some client keeps being passed over.",
    ),
)
