"""What one run of a comparison may spend: rounds, bytes or simulated seconds."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, object]

# What a run is told beside its run config: what it may spend
LIMIT_KIND, LIMIT_AMOUNT = "limit.kind", "limit.amount"
CONTENT = "limit.content"  # a digest of the files that it reads

# Each kind of budget, and the column of a run's rows that counts towards it
COLUMNS = {"rounds": "round", "bytes": "bytes", "seconds": "simulated-seconds"}
_UNITS: dict[str, tuple[str, float]] = {
    "rounds": ("rounds", 1.0),
    "B": ("bytes", 1.0),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "s": ("seconds", 1.0),
    "min": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


class BudgetError(ValueError):
    """A budget that cannot be read."""


@dataclass(frozen=True)
class Budget:
    """How much of what a run may spend."""

    kind: str
    amount: float

    @property
    def column(self) -> str:
        """The column of a run's rows that counts towards it."""
        return COLUMNS[self.kind]

    def spent(self, rows: Sequence[Row]) -> float:
        """Return what the rounds so far have spent."""
        values = [row.get(self.column) for row in rows]
        return float(max((v for v in values if isinstance(v, int | float)), default=0.0))

    def within(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rounds that the budget pays for."""
        return [row for row in rows if _number(row.get(self.column)) <= self.amount]

    def __str__(self) -> str:
        if self.kind == "rounds":
            return f"{self.amount:.0f} rounds"
        if self.kind == "seconds":
            return f"{self.amount:.3g} simulated seconds"
        unit = "MB" if self.amount >= 1e6 else "kB"
        return f"{self.amount / _UNITS[unit][1]:.3g} {unit}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def parse_budget(text: str) -> Budget:
    """Read a budget: a number of rounds, or a number with a unit."""
    match = _TEXT.fullmatch(text)
    unit = (match[2] or "rounds") if match else ""
    unit = "rounds" if unit == "round" else unit
    if match is None or unit not in _UNITS or not float(match[1]):
        raise BudgetError(
            f"budget {text!r}: expected a number, alone (rounds) or with one of {', '.join(_UNITS)}"
        )
    kind, size = _UNITS[unit]
    amount = float(match[1]) * size
    return Budget(kind, float(max(1, round(amount))) if kind == "rounds" else amount)
