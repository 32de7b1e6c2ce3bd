"""data.scale: a table with columns of very different sizes, on every way that a run takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import ConfigError, default_config, read_config
from forager.core.tasks import TaskError
from forager.core.tasks.spec import FOUND
from forager.server_app.retries import RunFailed
from forager.server_app.run_folder import RunFolder
from forager.tools.engine import run_local
from forager.tools.predict import load_model, predict
from safetensors import safe_open


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Years, prices and shares, as people have them."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 400)
    year = rng.normal(2000, 10, 400) + 30 * labels
    price = rng.normal(5e4, 1e4, 400) + 4e4 * labels
    share = rng.normal(0.2, 0.02, 400)
    path = tmp_path_factory.mktemp("table") / "shop.npz"
    x = np.stack([year, price, share], axis=1).astype(np.float32)
    for file, inputs in ((path, x), (path.with_name("scaled.npz"), _scaled(x))):
        parts = {"x_train": inputs[:300], "x_test": inputs[300:]}
        np.savez(file, allow_pickle=False, y_train=labels[:300], y_test=labels[300:], **parts)
    return path


def _scaled(x: Any) -> Any:
    train = x[:300].astype(np.float64)
    return ((x - train.mean(axis=0)) / train.std(axis=0)).astype(np.float32)


@pytest.fixture
def settings(table: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "task": "npz",
        "data.path": str(table),
        "partition": "iid",
        "num-clients": 4,
        "num-server-rounds": 3,
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "local.check-wire": True,
    }


def test_a_run_that_diverges_learns_with_it(settings: dict[str, Any], table: Path) -> None:
    with pytest.raises(RunFailed, match=r"data\.scale = 'standard'"):
        run_local(settings)
    done = run_local({**settings, "data.scale": "standard"})
    assert done.rounds[-1]["accuracy"] > 0.9
    kept = RunFolder(done.folder).read_config()
    assert str(kept["data.scale"]).startswith(FOUND)
    assert kept["overrides"]["data.scale"] == "standard"
    with np.load(table) as data:
        model = load_model(done.folder, (3,))
        found, _ = predict(model, data["x_test"])
        assert (found == data["y_test"]).mean() > 0.9
        with safe_open(done.folder / "model.safetensors", "np") as file:
            mean = np.array(json.loads(file.metadata()["input-scale"])["mean"])
        np.testing.assert_allclose(mean, data["x_train"].mean(axis=0), rtol=1e-4)


def test_a_resumed_run_keeps_its_scale(settings: dict[str, Any]) -> None:
    scaled = {**settings, "data.scale": "standard", "fraction-evaluate": 1.0}
    scaled["data.client-test-share"] = 0.2
    whole = run_local({**scaled, "run-name": "whole"})
    part = run_local({**scaled, "run-name": "part", "num-server-rounds": 1})
    rest = run_local({**scaled, "resume-from": str(part.folder)})
    models = [(f.folder / "model.safetensors").read_bytes() for f in (whole, rest)]
    assert models[0] == models[1]
    asked = [e for e in RunFolder(rest.folder).read_events() if e["event"] == "inputs-scaled"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "method",
    [
        {"strategy": "ode-balanced", "stream.velocity": 20.0},
        {"strategy": "trusted"},
        {"strategy": "cosage"},
        {"strategy": "ios-centred", "ios.first-round": 1},
        {"strategy": "split-test"},
        {"uplink": "top-k", "fine-tune.epochs": 1},
        {"objective": "scaffold", "personalise.epochs": 1},
    ],
    ids=lambda method: next(iter(method.values())),
)
def test_a_method_sees_what_it_would_see_of_scaled_data(
    settings: dict[str, Any], method: dict[str, Any], table: Path
) -> None:
    """Every way to the data, on clients and on the server, leads past the scale."""
    done = run_local({**settings, **method, "data.scale": "standard"})
    assert done.reason == "completed"
    beforehand = {"data.path": str(table.with_name("scaled.npz"))}
    same = run_local({**settings, **method, **beforehand})
    assert done.rounds[-1]["loss"] == pytest.approx(same.rounds[-1]["loss"], rel=1e-3)
    assert done.rounds[-1]["loss"] != done.rounds[0]["loss"]


def test_what_cannot_be_scaled_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=r"data\.scale: inputs must be"):
        run_local({**settings, "task": "poems", "data.path": "", "data.scale": "standard"})
    for privacy in ("local-dp", "central-dp"):
        with pytest.raises(ConfigError, match=r"data\.scale.*without noise"):
            read_config({**default_config(), "privacy": privacy, "data.scale": "standard"})
    with pytest.raises(ConfigError, match=r"data\.scale = 'Standard'.*none or standard"):
        read_config({"data.scale": "Standard"})


def test_two_clients_are_too_few_to_find_a_scale(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"data\.scale = 'standard' with num-clients = 2"):
        run_local({**settings, "num-clients": 2, "data.scale": "standard"})
