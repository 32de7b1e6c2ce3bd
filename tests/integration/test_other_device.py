"""Everything that computes does so on the run's device; proven on one that refuses CPU tensors."""

import json
from pathlib import Path

import forager.client_app.side as side
import forager.server_app.app as server
import forager.strategies.layers.coresets as coresets
import forager.strategies.server_samples as server_samples
import pytest
import torch
from forager.core.config import read_config
from forager.tools.engine import run_local
from stand_in_device import DEVICE, Far, StandIn, Stray

FEW = {
    "num-clients": 4,
    "clients-per-round": 3,
    "num-server-rounds": 2,
    "round.give-up-after": 0.1,
    "report": False,
    "coreset.first-round": 0,
    "ios.samples": 16,
}
CONFIGS = {
    "stacked": {"model": "mlp"},
    "regression": {"task": "diabetes"},
    "convolution": {"model": "small-cnn", "momentum": 0.9},
    "own evaluation": {"fraction-evaluate": 1.0, "data.client-test-share": 0.2},
    "fine-tuning": {"fine-tune.epochs": 1, "personalise.epochs": 1},
    "adam and cosage": {
        "strategy": "cosage",
        "optimiser.name": "adam",
        "optimiser.clip-norm": 1.0,
    },
    "trusted": {"strategy": "trusted"},
    "gradmatch": {"data-selector": "gradmatch", "model": "small-cnn"},
    "segmentation coreset": {"task": "shapes", "data-selector": "gradmatch"},
    "ode-balanced": {"strategy": "ode-balanced"},
    "ode-balanced by layers": {"strategy": "ode-balanced", "model": "mlp", "ode.layers": 2},
    "sld": {"data-selector": "sld", "task": "shapes"},
    "titan": {"data-selector": "titan", "task": "shapes"},
    "ios-centred": {"strategy": "ios-centred", "model": "small-cnn"},
    "flexcfl": {"cohorts": "flexcfl", "cohort.number": 2},
    "moon": {"strategy": "moon", "model": "mlp"},
    "scaffold": {"strategy": "scaffold"},
    "metrics": {"metrics": "accuracy,macro-f1,auc"},
}


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    side.task_side.cache_clear()
    monkeypatch.setattr(side, "device_or_cpu", lambda _name: (DEVICE, ""))
    monkeypatch.setattr(server, "chosen_device", lambda _name: DEVICE)
    monkeypatch.setattr(server_samples, "chosen_device", lambda _name: DEVICE)
    monkeypatch.setattr(coresets, "chosen_device", lambda _name: DEVICE)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_tensor_is_on_the_device(name: str, far_away: None, tmp_path: Path) -> None:
    config = {**FEW, **CONFIGS[name], "output-dir": str(tmp_path)}
    try:
        with StandIn():
            run = run_local(config)
            model = side.task_side(read_config(config)).trainer.model
    finally:
        side.task_side.cache_clear()
    assert all(isinstance(parameter, Far) for parameter in model.parameters())
    events = map(json.loads, (run.folder / "events.jsonl").read_text().splitlines())
    assert [event["failed"] for event in events if event.get("failed")] == []


def test_the_stand_in_notices_a_stray_tensor() -> None:
    with StandIn():
        far = torch.ones(2, 2).to(DEVICE)
        assert (far @ far).cpu().tolist() == [[2, 2], [2, 2]]
        with pytest.raises(Stray):
            far @ torch.ones(2, 2)
