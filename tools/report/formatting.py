"""Numbers and names as people read them."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from ...core.config.overrides import toml_value
from ...core.config.run_config import flattened
from ...core.log.event import shorten as shorten

UNKNOWN = "unknown"


def percent(share: float | None) -> str:
    """Write a share as a percentage."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def byte_unit(largest: float) -> tuple[str, float]:
    """Return the decimal unit that suits a number of bytes, and its size."""
    units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]
    return next(((name, size) for name, size in units if largest >= size), ("B", 1.0))


def data_size(count: float) -> str:
    """Write a number of bytes."""
    name, size = byte_unit(count)
    value = count / size
    decimals = 0 if name == "B" or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {name}"


def duration(seconds: float) -> str:
    """Write a length of time."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def plural(count: float, one: str, many: str = "") -> str:
    """Write a count with its noun."""
    return f"{count:,.0f} {one if count == 1 else many or one + 's'}"


def natural_order(key: str) -> list[tuple[int, str]]:
    """Sort keys the way people count."""
    parts = re.split(r"([0-9]+)", key)
    # Digits compare by length first, then as text: int() refuses very long ones.
    digits = [part.lstrip("0") if part[:1].isdecimal() else None for part in parts]
    pairs = zip(parts, digits, strict=True)
    return [(-1, part) if digit is None else (len(digit), digit) for part, digit in pairs]


def run_command(overrides: Mapping[str, Any], program: str = "flwr run .") -> str:
    """Return the command that runs with these keys set; unset ones (None) are left out."""
    pairs = [
        f"{key}={toml_value(value)}"
        for key, value in flattened(overrides).items()
        if value is not None
    ]
    if not pairs:
        return program
    text = " ".join(pairs)
    # Double quotes where the shell leaves what is between them alone, else its safest quoting.
    argument = shlex.quote(text) if re.search(r'["$`!\\]', text) else f'"{text}"'
    return f"{program} -c {argument}"


def jain_index(values: list[int]) -> float | None:
    r"""Return how even values are, :math:`(\sum x)^2 / (n \sum x^2)`: 1 when all are equal."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
