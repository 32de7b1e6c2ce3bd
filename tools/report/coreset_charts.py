"""On what clients trained: where the samples of a round came from, how clean and of which class."""

import numpy as np

from ...core.log.events import CoresetsUsed, RunStarted
from .axes import layers_chart, lines_chart, percent_axis
from .class_charts import class_counts, class_picture
from .formatting import percent
from .history import History
from .hover import over_lines
from .svg import FIRST, INK, SECOND, THIRD, Axes, Picture, Plot

ORIGINS = {
    "new": ("chosen in this round", THIRD),
    "kept": ("chosen earlier", FIRST),
    "random": ("at random", SECOND),
}


def samples_by_origin(history: History) -> dict[int, dict[str, float]]:
    """Return how many samples clients trained on in each round, by how they were chosen."""
    notes = history.noted(CoresetsUsed).items()
    found = {
        r: {n: sum(e.samples.get(n, 0.0) for e in events) for n in ORIGINS} for r, events in notes
    }
    return {current: sums for current, sums in found.items() if any(sums.values())}


def clean_shares(history: History) -> dict[int, float]:
    """Return the share of clean samples in each round, where the truth is known."""
    found: dict[int, float] = {}
    for current, events in history.noted(CoresetsUsed).items():
        known = [(e.clean_share, sum(e.sizes)) for e in events if e.clean_share is not None]
        samples = sum(size for _, size in known)
        if samples:
            found[current] = sum(share * size for share, size in known) / samples
    return found


def coreset_samples_chart(history: History) -> Plot | None:
    """Draw the samples of each round by how they were chosen."""
    samples = samples_by_origin(history)
    if not samples:
        return None
    rounds = range(min(samples), max(samples) + 1)
    layers = [
        (label, tint, [samples.get(current, {}).get(name, 0) for current in rounds])
        for name, (label, tint) in ORIGINS.items()
    ]
    return layers_chart("coreset-samples", "samples per round", rounds, layers)


def clean_chart(history: History) -> Plot | None:
    """Draw the share of clean samples over rounds, beside that of all data."""
    shares, all_data = clean_shares(history), _clean_share_of_data(history.started)

    def beside(axes: Axes) -> None:
        if all_data is not None:
            ends = [min(shares), max(shares)]
            axes.plot(ends, [all_data] * 2, color=INK, ls="--", lw=1, label="all their data")
        axes.set_ylim(top=1.02)
        percent_axis(axes)

    lines = [("what clients trained on", FIRST, shares)]
    return lines_chart("clean", "clean samples", lines, over_lines("%", 100), beside)


def _clean_share_of_data(run: RunStarted) -> float | None:
    rate = run.number("corruption.rate")
    return None if rate is None or run.config.get("noise") in (None, "", "none") else 1 - rate


def coreset_classes_chart(history: History) -> Plot | None:
    """Draw how many samples of each class the coresets of all clients hold."""
    notes = history.noted(CoresetsUsed)
    told = {current: [event.labels for event in events] for current, events in notes.items()}
    return class_picture("coreset-classes", *class_counts(told))


def coresets_sentence(history: History) -> str:
    """Say how clean the coresets were."""
    shares, all_data = clean_shares(history), _clean_share_of_data(history.started)
    if not shares:
        return ""
    late = list(shares.values())[-max(1, len(shares) // 5) :]
    against = "" if all_data is None else f", against {percent(all_data)} of all their data"
    return (
        f"In the last fifth of the rounds {percent(float(np.mean(late)))} of the samples that "
        f"clients trained on was clean{against}."
    )


PICTURES = (
    Picture(
        "How the samples of a round were chosen",
        coreset_samples_chart,
        "Coresets are kept for some rounds and then chosen again. Random samples belong to "
        "clients that have not chosen yet; peaks of new choices are rounds in which clients spend "
        "work on choosing.",
    ),
    Picture(
        "Clean share of the coresets",
        clean_chart,
        "A line above the dashed one means that corrupted samples are left out; the gap is "
        "the gain. Check whether it lasts when the model learns the noise, too.",
    ),
    Picture(
        "Classes in the coresets",
        coreset_classes_chart,
        "Rows are classes, columns are rounds; a stronger colour means more samples in the "
        "coresets of all clients. Look for pale rows: classes that the model hardly sees.",
    ),
)
