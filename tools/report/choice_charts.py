"""Why clients were chosen: how similar they were and how long they had waited (CosAge)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...core.log.events import Selected
from .axes import HEIGHT, legend, lines_chart
from .history import History
from .hover import over_lines
from .html_page import folded_table, text
from .svg import FIRST, INK, SERIES, Axes, Picture, Plot, draw

MOST_BINS = 10  # that have a colour of their own
BY_SIMILARITY = ("cosage", "dissimilarity", "dissimilarity-cooldown", "dissimilarity-sampling")


class Choice(NamedTuple):
    """A client that could be chosen; bin 1 holds those least like the last global update."""

    client: str
    bin: int
    similarity: float
    age: int
    chosen: bool = True


def _ranked(event: Selected) -> list[Choice]:
    """Return who could be chosen, as far as known, cut into one bin per client to choose."""
    columns = (
        (True, event.chosen, event.scores, event.ages),
        (False, event.others or (), event.other_scores, event.other_ages),
    )
    ranked = sorted(
        (score, key, age, chosen)
        for chosen, keys, scores, ages in columns
        for key, score, age in zip(keys, scores or (), ages or (), strict=False)
        if score is not None
    )
    bins = max(1, sum(chosen for *_, chosen in ranked))
    return [
        Choice(key, number, score, age, chosen)
        for number, part in enumerate(np.array_split(np.arange(len(ranked)), bins), start=1)
        for score, key, age, chosen in (ranked[i] for i in part)
    ]


def _selections(history: History) -> dict[int, list[Selected]]:
    by_similarity = history.started.config.get("client-selector") in BY_SIMILARITY
    return history.noted(Selected) if by_similarity else {}


def choices(history: History) -> dict[int, list[Choice]]:
    """Return who was chosen in each round and why, the least similar first."""
    found: dict[int, list[Choice]] = {}
    for current, events in _selections(history).items():
        for event in events:
            chosen = [choice for choice in _ranked(event) if choice.chosen]
            numbered = [choice._replace(bin=n) for n, choice in enumerate(chosen, start=1)]
            found.setdefault(current, []).extend(numbered)
    return {current: chosen for current, chosen in found.items() if chosen}


def similarity_of_choices_chart(history: History) -> Plot | None:
    """Draw the similarity of the clients chosen, a line per bin."""
    found = choices(history)
    if not found:
        return None
    bins = range(1, min(MOST_BINS, max(len(chosen) for chosen in found.values())) + 1)
    lines = [(f"bin {n}", SERIES[(n - 1) % len(SERIES)], _of_bin(found, n)) for n in bins]
    about = "similarity to the update"
    return lines_chart("why-chosen", about, lines, over_lines(""), height=HEIGHT + 0.3)


def _of_bin(found: Mapping[int, list[Choice]], number: int) -> dict[int, float]:
    return {r: c.similarity for r, chosen in found.items() for c in chosen if c.bin == number}


def last_candidates(history: History) -> tuple[int, list[Choice]]:
    """Return the last round whose rejected clients are known, and all its candidates, in bins."""
    for current, events in reversed(_selections(history).items()):
        if events[-1].others is not None:
            return current, _ranked(events[-1])
    return 0, []


def candidates_chart(history: History) -> Plot | None:
    """Draw similarity and age of everybody who could have been chosen last."""
    current, candidates = last_candidates(history)
    if not any(candidate.chosen for candidate in candidates):
        return None

    def paint(axes: Axes) -> None:
        for chosen, words, face in ((False, "passed over", "none"), (True, "chosen", FIRST)):
            part = [c for c in candidates if c.chosen == chosen]
            if part:
                axes.scatter(
                    [c.similarity for c in part],
                    [c.age for c in part],
                    s=28,
                    facecolors=face,
                    edgecolors=FIRST,
                    linewidths=1.0,
                    label=words,
                )
        for left, right in pairwise(candidates):
            if left.bin != right.bin:
                middle = (left.similarity + right.similarity) / 2
                axes.axvline(middle, color=INK, linewidth=0.6, linestyle=":")
        axes.set_xlabel(f"similarity to the update, round {current}")
        axes.set_ylabel("rounds since last chosen")
        axes.locator_params(axis="y", integer=True)
        axes.grid(axis="y")
        legend(axes)

    return draw("candidates", HEIGHT + 0.2, paint)


def _candidates_caption(history: History) -> str:
    text = "Everybody who was asked in the last round: each dot is a client."
    if history.started.config.get("client-selector") == "cosage":
        text += (
            " Dotted lines cut the ranking into one bin per client to choose. From each bin "
            "CosAge takes the highest dot, the client that has waited longest."
        )
    return text


def last_choice_table(history: History) -> str:
    """Return the last choice with the reason for each client, passed over or not."""
    last, candidates = last_candidates(history)
    found = choices(history)
    if not candidates and found:
        last = max(found)
        candidates = found[last]
    if not candidates:
        return ""
    rows = [
        [
            (text(history.name_of(each.client), 80), history.name_of(each.client)),
            ("yes" if each.chosen else "no", int(each.chosen)),
            (str(each.bin), each.bin),
            (f"{each.similarity:.3f}", each.similarity),
            (str(each.age), each.age),
        ]
        for each in candidates
    ]
    head = ("client", "chosen", "bin", "similarity", "rounds since last chosen")
    return folded_table(f"Why each client of round {last} was chosen, or was not", head, rows)


PICTURES = (
    Picture("The last choice: who else was there", candidates_chart, _candidates_caption),
    Picture(
        "Why they were chosen: similarity",
        similarity_of_choices_chart,
        "Clients are ranked by how similar their summary is to the last update of the global "
        "model. CosAge cuts the ranking into one bin per client to choose, bin 1 being the least "
        "similar, and takes from each bin the client that has waited longest. Lines that "
        "lie apart mean that different kinds of clients take part in every round.",
    ),
)
