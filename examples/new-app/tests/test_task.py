"""The task is sound, and a short training improves the model."""

import csv
import subprocess
import sys

import torch
from my_federation.task import Task


def test_the_model_fits_the_data():
    task, data = Task(), Task().data()
    outputs = task.model()(torch.from_numpy(data["x_test"][:5]))
    assert task.loss(outputs, torch.from_numpy(data["y_test"][:5])).shape == (5,)


def test_a_short_training_improves_the_model(tmp_path):
    keys = f"strategy='fedavg' num-server-rounds=5 output-dir='{tmp_path}' run-name='short'"
    command = [sys.executable, "-m", "forager.tools.cli", "run", "--local", "-c", keys]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "short" / "rounds.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    assert losses[-1] < losses[0]
