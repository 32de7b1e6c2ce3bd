"""A runner that asks how many of CosAge's choices depend on how its equations are read.

Clients compare their proxy updates by both forms of eq. 8 and 9: divided by their norms, and as
printed. The run goes by the form of its config. Beside it, the other form chooses from the same
clients with the same ages; ``agreement of choices`` is how many clients both choose.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.config import Scalar
from ...selectors.client_selectors.cosage import cosage
from ...selectors.similarities.power_norm import FORMS, Reference
from ...server_app.run_folder import RunFolder
from ...tools.engine.local import LocalResult
from ..worst_class import run_watched

Scores = dict[str, tuple[float, float]]  # of each client, by the run's form and by the other


def run_two_forms(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run CosAge, and count in each round whom both forms choose."""
    with both_forms() as found:
        result = run_watched(overrides, quiet=quiet)
    events = {
        event["round"]: event
        for event in RunFolder(result.folder).read_events()
        if event["event"] == "selected" and event.get("phase", "train") == "train"
    }
    for row in result.rounds:
        number = row["round"]
        if number in found and number in events:
            row["agreement of choices"] = chosen_by_both(events[number], found[number])
    return result


def chosen_by_both(event: Mapping[str, Any], scores: Scores) -> int:
    """Return how many clients both forms choose, ties going to the lower name.

    >>> event = {"chosen": ["a"], "ages": [0], "others": ["b", "c"], "other-ages": [0, 0]}
    >>> chosen_by_both(event, {"a": (0.1, 0.9), "b": (0.5, 0.5), "c": (0.9, 0.1)})
    0
    """
    ages = dict(zip(event["chosen"], event["ages"], strict=True))
    ages |= dict(zip(event["others"], event["other-ages"], strict=True))
    keys = sorted(ages.keys() & scores.keys())
    age, count = [ages[key] for key in keys], len(event["chosen"])
    mine, other = (cosage([scores[key][n] for key in keys], age, count) for n in (0, 1))
    return len(set(mine.tolist()) & set(other.tolist()))


@contextmanager
def both_forms() -> Iterator[dict[int, Scores]]:
    """Note what clients of this process find by either form, round by round."""
    summaries: Any = import_module("forager.client_app.handlers.summaries")
    hook: Any = import_module("forager.client_app.hooks.similarity")
    found: dict[int, Scores] = {}
    others: list[NDArray[np.float64]] = []
    asked = summaries.similarities

    class Both(Reference):
        def __init__(self, u: ArrayLike, p: float, form: str) -> None:
            super().__init__(u, p, form)
            (other,) = set(FORMS) - {form}
            self.other = Reference(u, p, other)

        def similarities(self, updates: ArrayLike) -> NDArray[np.float64]:
            others.append(self.other.similarities(updates))
            return super().similarities(updates)

    def similarities(batch: Any, *arguments: Any) -> list[float]:
        others.clear()
        values: list[float] = asked(batch, *arguments)
        (other,) = others  # one global update for all
        pairs = zip(values, other.tolist(), strict=True)
        found.setdefault(batch.round, {}).update(zip(batch.keys, pairs, strict=True))
        return values

    hook.Reference, summaries.similarities = Both, similarities
    try:
        yield found
    finally:
        hook.Reference, summaries.similarities = Reference, asked
