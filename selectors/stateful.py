"""State of objects between rounds, as a tree of arrays, numbers and texts."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


class Stateful:
    """Saves and restores the attributes that ``remembers`` names.

    Names in the tree have dashes and no leading underscore: ``_made_in`` is "made-in". An attribute
    with a state, such as a generator, saves that state. Loading keeps the type of an attribute;
    arrays and dicts are replaced, never changed in place. Attributes that an older version did not
    save stay as they are.

    >>> class Turns(Stateful):
    ...     remembers = ("_last_turn", "times")
    ...     def __init__(self):
    ...         self._last_turn, self.times = 0, {}
    >>> turns, other = Turns(), Turns()
    >>> turns._last_turn, turns.times = 3, {"a": 1}
    >>> turns.state_dict()
    {'last-turn': 3, 'times': {'a': 1}}
    >>> other.load_state_dict(turns.state_dict())
    >>> other._last_turn, other.times
    (3, {'a': 1})
    """

    remembers: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a tree."""
        return saved(self, self.remembers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        restore(self, self.remembers, state)


def saved(owner: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return some attributes of an object as a tree."""
    return {_key(name): _saved(getattr(owner, name)) for name in names}


def restore(owner: Any, names: tuple[str, ...], state: Mapping[str, Any]) -> None:
    """Give an object back the attributes that :func:`saved` returned."""
    for name in (name for name in names if _key(name) in state):
        now, kept = getattr(owner, name), state[_key(name)]
        if hasattr(now, "load_state_dict"):
            now.load_state_dict(kept)
        elif isinstance(now, np.random.Generator):
            now.bit_generator.state = kept
        elif isinstance(now, np.ndarray):
            setattr(owner, name, np.array(kept, dtype=now.dtype))
        else:
            setattr(owner, name, kept if now is None or kept is None else type(now)(kept))


def _key(name: str) -> str:
    return name.lstrip("_").replace("_", "-")


def _saved(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, dict | list):
        return dict(value) if isinstance(value, dict) else list(value)
    return sorted(value) if isinstance(value, set) else value
