"""Save the run so that it can be resumed exactly where it was."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.log.events import CheckpointSaved
from ...core.storage import tree
from ..loop import Loop
from ..run_folder import is_flat
from .base import Callback

_log = logging.getLogger("forager")
_KIND = "checkpoint"
_MOST_ROUNDS = 10**6
_NAME = re.compile(r"round-(\d+)\.safetensors")


class CheckpointError(ValueError):
    """There is nothing to resume from, or it is not a checkpoint."""


class Checkpoints(Callback):
    """Write ``round-<n>.safetensors`` every few rounds, when the run is stopped, and at its end.

    ``may_write`` raises if another process has resumed this run.
    """

    def __init__(
        self, folder: Path, every: int, keep: int, may_write: Callable[[], None] = lambda: None
    ) -> None:
        self.folder = folder
        self.may_write = may_write
        self.every = every
        self.keep = keep
        self._saved = -1

    def on_run_start(self, loop: Loop) -> None:
        """Drop what an earlier run saved of rounds to be played again, or did not finish saving."""
        for leftover in self.folder.glob(".round-*.safetensors.????????.tmp"):
            leftover.unlink(missing_ok=True)
        for path in _files(self.folder):
            if _round_of(path) > loop.round:
                path.unlink(missing_ok=True)

    def on_roll_back(self, loop: Loop) -> None:
        """Drop what was saved of later rounds, which failed."""
        self.may_write()
        self.on_run_start(loop)
        self._saved = loop.round

    def on_round_end(self, loop: Loop) -> None:
        """Save if it is time."""
        if self.every and loop.round % self.every == 0:
            self._save(loop, loop.take_snapshot())

    def on_run_end(self, loop: Loop) -> None:
        """Save the last complete round, also when the run was interrupted in the next."""
        self._save(loop, loop.snapshot)
        if self._saved != loop.snapshot["round"]:
            loop.unwritten.append("the last checkpoint")

    def _save(self, loop: Loop, state: dict[str, Any]) -> None:
        if state["round"] == self._saved:
            return
        path = self.folder / f"round-{state['round']:06d}.safetensors"
        self.may_write()
        try:
            tree.save(path, state, _KIND)
        except Exception as error:  # neither a full disk nor a fault of ours may end the run
            disk = isinstance(error, OSError)
            _log.warning(
                "checkpoint %s could not be written: %s; the run continues, and can be resumed "
                "from %s.%s",
                path.name,
                (error.strerror if isinstance(error, OSError) else None) or repr(error),
                next((file.name for file in reversed(_files(self.folder))), "the beginning only"),
                f" Make room in {self.folder}" if disk else "",
            )
            return
        self._saved = state["round"]
        loop.federation.note(CheckpointSaved(round=self._saved, path=path.name))
        for old in _files(self.folder)[: -self.keep]:
            old.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("round-*.safetensors") if _NAME.fullmatch(path.name))
    return sorted(found, key=_round_of)


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def load_earlier(folder: Path, server_round: int) -> dict[str, Any] | None:
    """Return the newest readable state of a round before this one; None if there is none."""
    for file in reversed(_files(folder)):
        if _round_of(file) < server_round:
            try:
                return tree.load(file, _KIND)
            except (tree.TreeError, OSError) as error:
                _log.warning("checkpoint %s cannot be used: %s", file.name, error)
    return None


def _is_of_a_run(state: dict[str, Any]) -> bool:
    number, config = state.get("round"), state.get("config")
    numbered = isinstance(number, int) and 0 <= number <= _MOST_ROUNDS
    return numbered and isinstance(config, dict) and is_flat(config)


def load_checkpoint(where: str) -> tuple[Path, dict[str, Any]]:
    """Return the run folder and the state of its newest readable checkpoint, or that of a file."""
    path = Path(where)
    files = [path] if path.is_file() else _files(path / "checkpoints")[::-1]
    if not files:
        raise CheckpointError(
            f"resume-from = {where!r}: neither a checkpoint nor a run folder with checkpoints"
        )
    problems = []
    for file in files:
        try:
            state = tree.load(file, _KIND)
            if not _is_of_a_run(state):
                raise tree.TreeError(f"{file}: no round or no config in it")
        except (tree.TreeError, OSError) as error:
            problems.append(f"{file.name}: {error}")
            _log.warning("checkpoint %s cannot be used: %s", file.name, error)
        else:
            return file.resolve().parent.parent, state
    raise CheckpointError(f"resume-from = {where!r}: no usable checkpoint ({'; '.join(problems)})")
