"""Reading a log that anybody may have written: what makes no sense is passed over."""

import math
import re
from collections.abc import Mapping
from typing import Any


def number(value: Any) -> float | None:
    """Return a finite number as it is, and None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def natural_order(key: str) -> list[tuple[int, str]]:
    """Sort keys the way people count.

    Examples
    --------
    >>> sorted(["client-10", "client-9", "a"], key=natural_order)
    ['a', 'client-9', 'client-10']
    """
    parts = re.split(r"([0-9]+)", key)
    # Digits compare by length first, then as text: int() refuses very long ones.
    digits = [part.lstrip("0") if part[:1].isdecimal() else None for part in parts]
    pairs = zip(parts, digits, strict=True)
    return [(-1, part) if digit is None else (len(digit), digit) for part, digit in pairs]


def round_of(event: Mapping[str, Any]) -> int | None:
    """Return the round that an event is of."""
    value = number(event.get("round"))
    return None if value is None else int(value)


def keys_in(value: Any) -> list[str]:
    """Return a list of keys as texts; nothing for what is no list."""
    return [str(key) for key in value] if isinstance(value, list | tuple) else []


def numbers_in(value: Any) -> list[float]:
    """Return a list of numbers, 0 for those that are none.

    >>> numbers_in([1, None, 2.5]), numbers_in("many")
    ([1, 0.0, 2.5], [])
    """
    return [number(entry) or 0.0 for entry in value] if isinstance(value, list | tuple) else []


def by_name(value: Any) -> dict[str, float]:
    """Return the numbers of a table by their names; what is no number is left out.

    >>> by_name({"0.1": 12, "0.2": None}), by_name(None)
    ({'0.1': 12}, {})
    """
    entries = value.items() if isinstance(value, Mapping) else ()
    known = {str(name): number(entry) for name, entry in entries}
    return {name: entry for name, entry in known.items() if entry is not None}
