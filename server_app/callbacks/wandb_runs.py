"""Runs in Weights & Biases: ``callbacks = "wandb"`` (`pip install 'forager-fl[wandb]'`).

Where they go is W&B's affair: ``WANDB_PROJECT``, ``WANDB_ENTITY``, ``WANDB_API_KEY``, and
``WANDB_MODE=offline`` to keep them in the run folder until ``wandb sync``.
"""

import os
from typing import Any

from .tracker import Tracker


class WandbRuns(Tracker):
    """One run in W&B, with the settings as its config."""

    def open(self, config: dict[str, Any], title: str) -> str:
        """Begin a run, or continue the previous one."""
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "forager"),
            name=self.folder.path.resolve().name,
            notes=title,
            config=config,
            dir=str(self.folder.path),
            id=self.run_id or None,
            resume="allow" if self.run_id else None,
        )
        return str(self.run.id)

    def log(self, server_round: int, values: dict[str, float]) -> None:
        """Log the numbers of a round as those of that step."""
        self.run.log(values, step=server_round)

    def close(self, completed: bool) -> None:
        """End the run."""
        self.run.finish(exit_code=0 if completed else 1)
