"""Runs in MLflow: ``callbacks = "mlflow"`` (`pip install 'forager-fl[mlflow]'`).

The environment variables ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` say where they
go.
"""

import os
from typing import Any

from .tracker import Tracker


class MlflowRuns(Tracker):
    """One run in MLflow, with the settings as parameters and the files as artifacts."""

    def open(self, config: dict[str, Any], title: str) -> str:
        """Begin a run, or continue the previous one."""
        # A server that is down would otherwise be tried for minutes, in every round.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import mlflow

        self._mlflow = mlflow
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
        self._mlflow.log_metrics(values, step=server_round)

    def close(self, completed: bool) -> None:
        """Add what the run left behind, and end it."""
        for path in (self.folder.rounds_path, self.folder.report_path, self.folder.model_path):
            if path.exists():
                self._mlflow.log_artifact(str(path))
        self._mlflow.end_run("FINISHED" if completed else "FAILED")
