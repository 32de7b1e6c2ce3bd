"""How cohorts descend from each other, read from the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.log.events import CohortsEvaluated, CohortsTrained, Evaluated, Number, Regrouped
from .formatting import natural_order
from .history import History


@dataclass
class CohortBand:
    """One cohort."""

    name: str
    # where it stands among the others: descendants lie where their parent lay
    place: tuple[int, ...]
    line: int  # number of its line of descent: a cohort that goes on under another name keeps it
    parent: str = ""  # the cohort that it mostly came from; empty for a first one
    # sizes, scores: clients, and the main metric of its model, by round
    sizes: dict[int, float] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)


class CohortDescent:
    """All cohorts that ever were, in the order in which they came."""

    def __init__(self, history: History) -> None:
        self.cohorts: dict[str, CohortBand] = {}
        # Scores are on the clients' own data, if these were asked, else on the server's.
        self.on_clients = bool(history.noted(CohortsEvaluated))
        self._lines = 0
        changes = history.noted(Regrouped)
        for current, events in history.noted(CohortsTrained).items():
            sizes = events[-1].members
            # A change in a round comes before its sizes: they are those of the new cohorts.
            for change in changes.get(current, []):
                self._descend(change.cohorts)
            for name in sorted(sizes, key=natural_order):
                if name not in self.cohorts:
                    self._add(name, "", (len(self.cohorts),))
                self.cohorts[name].sizes[current] = sizes[name]
        self._read_scores(history)

    def _add(self, name: str, parent: str, place: tuple[int, ...], line: int | None = None) -> None:
        if line is None:
            line, self._lines = self._lines, self._lines + 1
        self.cohorts[name] = CohortBand(name, place, line, parent)

    def _descend(self, regrouping: Mapping[str, Mapping[str, float]]) -> None:
        """Add the new cohorts below those that they mostly came from."""
        children: dict[str, list[str]] = {}
        for name, weights in regrouping.items():
            if name not in self.cohorts and weights:
                main = max(weights, key=lambda origin: weights[origin])
                children.setdefault(main, []).append(name)
        for parent, names in children.items():
            if parent not in self.cohorts:  # it was split before it ever trained
                self._add(parent, "", (len(self.cohorts),))
            origin = self.cohorts[parent]
            alone, names = len(names) == 1, sorted(names, key=natural_order)
            heir = max(names, key=lambda name: regrouping[name][parent])
            for number, name in enumerate(names):
                place = origin.place if alone else (*origin.place, number)
                self._add(name, parent, place, origin.line if name == heir else None)

    def _read_scores(self, history: History) -> None:
        told: dict[int, Mapping[str, Number]]
        if self.on_clients:
            told = {r: events[-1].means for r, events in history.noted(CohortsEvaluated).items()}
        else:
            told = {r: events[-1].cohorts or {} for r, events in history.noted(Evaluated).items()}
        for current, scores in told.items():
            for name, score in scores.items():
                if name in self.cohorts and score is not None:
                    self.cohorts[name].scores[current] = score

    def rounds(self) -> list[int]:
        """Return the rounds from the first to the last with known sizes."""
        known = [current for cohort in self.cohorts.values() for current in cohort.sizes]
        return list(range(min(known), max(known) + 1)) if known else []

    def bands(self) -> list[CohortBand]:
        """Return the cohorts under names that last: a tree's own, else a letter per descent."""
        if self.named_by_descent:
            return self.ordered()
        merged: dict[int, CohortBand] = {}
        for cohort in self.cohorts.values():
            band = merged.setdefault(
                cohort.line, CohortBand(self.shown(cohort.name), cohort.place, cohort.line)
            )
            band.place = cohort.place  # where its last members are
            band.sizes |= cohort.sizes
            band.scores |= cohort.scores
        return sorted(merged.values(), key=lambda band: band.place)

    @property
    def named_by_descent(self) -> bool:
        """Whether the name of each cohort begins with that of the one that it comes from."""
        return all(c.name.startswith(f"{c.parent}.") for c in self.cohorts.values() if c.parent)

    def shown(self, name: str) -> str:
        """Return the name that a cohort goes by in pictures and tables."""
        if self.named_by_descent or name not in self.cohorts:
            return name
        line = self.cohorts[name].line
        return f"{chr(65 + line % 26)}{line // 26 or ''}"

    def ordered(self) -> list[CohortBand]:
        """Return the cohorts so that descendants lie where their parent lay."""
        return sorted(self.cohorts.values(), key=lambda cohort: cohort.place)

    def last_names(self) -> list[str]:
        """Return what those of the last round are called in pictures."""
        return list(dict.fromkeys(self.shown(cohort.name) for cohort in self.last()))

    def last(self) -> list[CohortBand]:
        """Return those of the last round, in that order."""
        rounds = self.rounds()
        return [cohort for cohort in self.ordered() if rounds and rounds[-1] in cohort.sizes]
