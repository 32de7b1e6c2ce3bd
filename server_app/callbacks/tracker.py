"""Experiment trackers: one run there for one run here.

``callbacks = "mlflow"`` (`pip install 'forager-fl[mlflow]'`) goes where the environment variables
``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` say, ``callbacks = "wandb"`` (`pip install
'forager-fl[wandb]'`) where W&B's do: ``WANDB_PROJECT``, ``WANDB_ENTITY``, ``WANDB_API_KEY``, and
``WANDB_MODE=offline`` to keep runs in the run folder until ``wandb sync``.
"""

import os
from typing import Any

from ...core.methods.base import load
from ..loop import Loop
from ..run_folder import RunFolder
from .base import Callback


class Tracker(Callback):
    """Opens a run at its start, passes on the numbers of every round, closes it at the end."""

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

    def on_round_end(self, loop: Loop) -> str | None:
        """Pass on what happened since."""
        for server_round, values in self._values.new():
            self.log(server_round, values)
        return None

    def on_run_end(self, loop: Loop) -> None:
        """End the run there, with what came last."""
        self.on_round_end(loop)
        self.close(loop.reason in ("completed", "early-stop"))

    def state_dict(self) -> dict[str, Any]:
        """Return which run it is there."""
        return {"run-id": self.run_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.run_id = str(state.get("run-id", ""))


class MlflowRuns(Tracker):
    """One run in MLflow, with the settings as parameters and the files as artifacts."""

    def open(self, config: dict[str, Any], title: str) -> str:
        """Begin a run, or continue the previous one."""
        # A server that is down would otherwise be tried for minutes, in every round.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import mlflow

        if not os.environ.get("MLFLOW_EXPERIMENT_NAME"):
            mlflow.set_experiment("forager")
        name = self.folder.path.resolve().name
        run = mlflow.start_run(run_id=self.run_id or None, run_name=name)
        if not self.run_id:
            mlflow.set_tag("title", title)
            mlflow.log_params(config)
        return str(run.info.run_id)

    def log(self, server_round: int, values: dict[str, float]) -> None:
        """Log the numbers of a round as metrics of that step."""
        import mlflow

        mlflow.log_metrics(values, step=server_round)

    def close(self, completed: bool) -> None:
        """Add what the run left behind, and end it."""
        import mlflow

        for path in (self.folder.rounds_path, self.folder.report_path, self.folder.model_path):
            if path.exists():
                mlflow.log_artifact(str(path))
        mlflow.end_run("FINISHED" if completed else "FAILED")


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
