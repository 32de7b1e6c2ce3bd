"""Clients look at their labels where the server can compare what they find, and only there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.client_app.hooks import confirmed_labels
from forager.core.config import default_config
from forager.server_app.app import build_loop
from forager.server_app.loop import Loop
from forager.strategies.layers.base import Layer
from forager.strategies.layers.confirmed_labels import ConfirmedLabels
from forager.strategies.server_samples import ServerSamples
from forager.tools.engine.local_grid import LocalGrid


def small_run(folder: Path, **more: Any) -> Loop:
    config = {"data-selector": "confirmed", "num-clients": 4, "clients-per-round": 4}
    config |= {"output-dir": str(folder), "local-steps": 1, **more}
    run_config = {**default_config(), **config}
    return build_loop(LocalGrid(4, run_config), run_config)[1]


def layer_of(loop: Loop) -> ConfirmedLabels:
    layer: Any = loop.strategy
    while not isinstance(layer, ConfirmedLabels):
        assert isinstance(layer, Layer)
        layer = layer.inner
    return layer


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of clients of each forward pass that the hook makes."""
    found: list[int] = []
    predict = confirmed_labels.predictions_of_all

    def counted(model: Any, models: Any, data: Any) -> Any:
        found.append(len(data))
        return predict(model, models, data)

    monkeypatch.setattr(confirmed_labels, "predictions_of_all", counted)
    return found


def test_without_clean_samples_nobody_looks(tmp_path: Path, looks: list[int]) -> None:
    small_run(tmp_path, **{"data.validation-share": 0.0}).play_round()
    assert not looks


def test_with_clean_samples_all_who_train_look(tmp_path: Path, looks: list[int]) -> None:
    loop = small_run(tmp_path)
    loop.play_round()
    assert looks == [4]
    assert len(layer_of(loop)._shares) == 4


@pytest.mark.parametrize(
    ("wrong", "accuracy", "blends"), [(0.5, 0.95, True), (0.3, 0.95, False), (0.5, 0.8, False)]
)
def test_samples_are_blended_where_many_labels_are_wrong_and_the_model_fits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: float,
    accuracy: float,
    blends: bool,
) -> None:
    asked: list[int] = []
    blend = confirmed_labels.blend

    def counted(weights: Any, rng: np.random.Generator) -> Any:
        asked.append(len(weights))
        return blend(weights, rng)

    monkeypatch.setattr(confirmed_labels, "blend", counted)
    monkeypatch.setattr(ServerSamples, "accuracy", lambda *_: accuracy)
    loop = small_run(tmp_path)
    layer = layer_of(loop)
    layer.doubt.found, layer.doubt._estimates = True, [wrong]
    loop.play_round()
    assert len(asked) == (4 if blends else 0)
