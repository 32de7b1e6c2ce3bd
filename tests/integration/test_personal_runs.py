"""Parts of the model that clients keep, and Ditto's personal models, in whole runs."""

import numpy as np
import pytest
import torch
from forager.client_app.handlers.evaluation import own_models
from forager.core.config import default_config, read_config
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.objectives.ditto import GLOBAL, Pulled
from forager.core.learning.objectives.prox import Prox
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split
from forager.core.tasks.errors import TaskError
from forager.core.wire.arrays import from_record
from forager.server_app.app import build_loop
from forager.strategies.build import build_strategy
from forager.tools.engine import run_local
from forager.tools.engine.local_grid import LocalGrid
from torch import nn

BASE = {"model": "mlp", "num-clients": 6, "client-selector": "all", "num-server-rounds": 3}
BASE |= {"partition": "pathological", "report": False, "learning-rate": 0.3}


def normed(shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes)
    )


def trained(tmp_path, **keys):
    """A run's model before and after."""
    flat = {**default_config(), **BASE, "output-dir": str(tmp_path)}
    flat |= {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    _, loop = build_loop(LocalGrid(6, flat, check_wire=True), flat)
    start = from_record(loop.arrays)
    assert loop.run() == "completed"
    return start, from_record(loop.arrays)


@pytest.mark.parametrize("uplink", ["dense", "top-k"])
@pytest.mark.parametrize("aggregator", ["fedavg", "fedyogi"])
def test_a_head_that_clients_keep_is_never_aggregated(tmp_path, uplink, aggregator):
    start, end = trained(tmp_path, personalise__keep="head", uplink=uplink, aggregator=aggregator)
    *body, weight, bias = start
    for name in (weight, bias):
        np.testing.assert_allclose(end[name], start[name], atol=1e-6)
    assert all(np.abs(end[name] - start[name]).max() > 1e-3 for name in body)


def test_norms_are_kept_with_their_running_statistics(tmp_path):
    keys = {"personalise__keep": "norms", "model": f"{__name__}:normed"}
    start, end = trained(tmp_path, **keys)
    norms = [name for name in start if name.startswith("2.")]
    assert len(norms) >= 4
    for name in [*norms, "1.weight", "4.weight", "4.bias"]:
        same = np.allclose(end[name], start[name], atol=1e-6)
        assert same == (name in norms), name


def accuracy(tmp_path, name, **keys):
    flat = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    told = {"fraction-evaluate": 1.0, "data.client-test-share": 0.3, "num-server-rounds": 8}
    paths = {"output-dir": str(tmp_path), "run-name": name}
    return run_local({**BASE, **told, **paths, **flat}).rounds[-1]["clients-accuracy-mean"]


def test_clients_evaluate_what_they_keep(tmp_path):
    """With two classes a client, its own head is better than one for all."""
    shared = accuracy(tmp_path, "shared")
    assert accuracy(tmp_path, "head", personalise__keep="head") > shared + 0.05
    assert accuracy(tmp_path, "ditto", objective="ditto", ditto__pull=0.1) > shared + 0.05


def test_ditto_trains_the_same_global_model_as_fedavg(tmp_path):
    _, plain = trained(tmp_path / "a")
    _, ditto = trained(tmp_path / "b", objective="ditto")
    assert all(np.array_equal(plain[name], ditto[name]) for name in plain)


def test_the_personal_model_is_pulled_towards_the_global_one():
    """From the global model it is FedProx; from elsewhere a strong pull brings it there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2))
    sent = read_arrays(model)
    data = Split(torch.randn(8, 3), torch.randint(0, 2, (8,)))
    settings = TrainSettings(3, 0, 4, 0.1, 0.0, 0.0)
    pulled = Pulled(read_config({"ditto.pull": 0.7}))
    trainer = Trainer(model, "serial")
    (own,) = trainer.train([Job(sent, data, 1, carried={GLOBAL: sent})], settings, pulled)
    (prox,) = trainer.train([Job(sent, data, 1)], settings, Prox(read_config({"prox.mu": 0.7})))
    np.testing.assert_allclose(own.arrays["0.weight"], prox.arrays["0.weight"], rtol=1e-5)
    far = {name: array + 5 for name, array in sent.items()}
    strong = Pulled(read_config({"ditto.pull": 9.0}))
    (near,) = trainer.train([Job(far, data, 1, carried={GLOBAL: sent})], settings, strong)
    assert np.abs(near.arrays["0.weight"] - sent["0.weight"]).max() < 0.5


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"personalise.keep": "head", "model": "softmax"}, "it is the whole model"),
        ({"personalise.keep": "norms", "model": "mlp"}, "the model has no such part"),
    ],
)
def test_a_model_without_the_part_is_refused(keys, why):
    with pytest.raises(TaskError, match=rf"personalise.keep = .*: {why}"):
        build_strategy(read_config(keys))


def test_hooks_that_keep_nothing_leave_models_as_they_came():
    class Side:
        hooks = ()

    class Batch:
        side, models = Side(), [{"w": np.ones(1)}]

    assert own_models(Batch()) is Batch.models
