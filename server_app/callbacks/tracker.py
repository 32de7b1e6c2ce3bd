"""What callbacks for experiment trackers share: one run there for one run here."""

from typing import Any, ClassVar

from ...core.methods.base import load
from ..loop import Loop
from ..run_folder import RunFolder
from .base import Callback


class Tracker(Callback):
    """Opens a run at its start, passes on the numbers of every round, closes it at the end."""

    remembers: ClassVar[tuple[str, ...]] = ("run_id",)

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.run_id = ""  # the tracker's, which a resumed run continues
        self._values = load("tools.report.tail:RoundValues")(folder)

    def open(self, config: dict[str, Any], title: str) -> str:
        """Begin a run, or continue ``run_id``; return its id."""
        raise NotImplementedError

    def log(self, server_round: int, values: dict[str, float]) -> None:
        """Take the numbers of one round."""
        raise NotImplementedError

    def close(self, completed: bool) -> None:
        """End the run."""
        raise NotImplementedError

    def on_run_start(self, loop: Loop) -> None:
        """Begin a run there."""
        self._values.skip()
        self.run_id = self.open(dict(loop.plan.config), loop.title)

    def on_round_end(self, loop: Loop) -> None:
        """Pass on what happened since."""
        for server_round, values in self._values.new():
            self.log(server_round, values)

    def on_run_end(self, loop: Loop) -> None:
        """End the run there, with what came last."""
        self.on_round_end(loop)
        self.close(loop.reason in ("completed", "early-stop"))
