"""What every callback can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..loop import Loop


class Callback:
    """Called by the round loop; overrides what it needs.

    >>> class Enough(Callback):
    ...     def on_round_end(self, loop):
    ...         return "ten rounds are enough" if loop.round == 10 else None
    """

    def on_run_start(self, loop: Loop) -> None:
        """Before the first round, or the first after a resume."""

    def on_round_end(self, loop: Loop) -> str | None:
        """After every round; a text ends the run and is its reason."""

    def on_roll_back(self, loop: Loop) -> None:
        """After the run has gone back to an earlier round, ``loop.round``."""

    def on_run_end(self, loop: Loop) -> None:
        """After the last round, however the run ended; ``loop.reason`` says how."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
