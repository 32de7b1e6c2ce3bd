"""A run with MOON: its projection is trained, saved with the model, and used to predict."""

from pathlib import Path

import pytest
import torch
from forager.core.tasks.models import build_model, split_at_head
from forager.tools.engine import run_local
from forager.tools.predict import load_model


@pytest.mark.parametrize("width", [0, 12])
def test_the_saved_model_has_the_projection(width: int, tmp_path: Path) -> None:
    small = {"num-clients": 4, "num-server-rounds": 2, "report": False, "model": "mlp"}
    run = run_local(
        {**small, "strategy": "moon", "moon.projection": width, "output-dir": str(tmp_path)}
    )
    assert run.reason == "completed"
    model = load_model(run.folder, (1, 8, 8))
    body, head = split_at_head(model)
    assert head.in_features == (width or 64)
    fresh = build_model("mlp", (1, 8, 8), 10, projection=width).state_dict()
    assert all(not torch.equal(now, fresh[name]) for name, now in model.state_dict().items())
    assert body(torch.zeros(2, 1, 8, 8)).shape == (2, head.in_features)
