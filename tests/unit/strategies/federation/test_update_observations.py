"""What rules see of the models that clients trained, in whole runs."""

import math

import numpy as np
import pytest
from forager.core.config import default_config, read_config
from forager.core.tasks.errors import TaskError
from forager.core.wire.arrays import from_record
from forager.server_app.app import build_loop
from forager.strategies.build import build_strategy
from forager.strategies.layers.selection import Selection
from forager.tools.engine.local_grid import LocalGrid
from torch import nn

SIZE = 6


def without_bias(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=False))


def run(tmp_path, **keys):
    flat = {**default_config(), "output-dir": str(tmp_path), "num-clients": SIZE, "report": False}
    flat |= {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    _, loop = build_loop(LocalGrid(SIZE, flat), flat)
    start = from_record(loop.arrays)
    assert loop.run() == "completed"
    layer = loop.strategy
    while not isinstance(layer, Selection):
        layer = layer.inner
    return start, from_record(loop.arrays), layer


@pytest.mark.parametrize("uplink", ["dense", "top-k"])
def test_the_mean_of_bias_updates_is_what_the_model_changed_by(tmp_path, uplink):
    start, end, layer = run(
        tmp_path,
        client_selector="hics",
        fraction_train=1.0,
        num_server_rounds=1,
        weighting="uniform",
        local_steps=3,
        uplink=uplink,
        top_k__density=1.0,
    )
    keys = [str(i) for i in range(SIZE)]
    told = layer.memory.values(keys, "bias-update")
    assert told.shape == (SIZE, 10)
    np.testing.assert_allclose(3 * told.mean(axis=0), end["1.bias"] - start["1.bias"], atol=1e-5)


def test_only_participants_are_known_and_the_rest_comes_first(tmp_path):
    _, _, layer = run(tmp_path, client_selector="divfl", clients_per_round=2, num_server_rounds=2)
    told = layer.memory.values([str(i) for i in range(SIZE)], "update")
    assert np.isfinite(told).all(axis=1).sum() == 4


def test_fedcor_asks_nobody_between_two_looks_at_the_losses(tmp_path):
    _, _, layer = run(
        tmp_path,
        client_selector="fedcor",
        clients_per_round=2,
        num_server_rounds=15,
    )
    asked = {layer.memory.told_in(str(i), "loss") for i in range(SIZE)}
    assert max(asked) <= 15
    assert layer.selector.state_dict()["round"] == 15
    assert all(len(past) == 10 for past in layer.selector.state_dict()["changes"].values())


def test_flad_trains_fewer_than_it_may(tmp_path):
    _, _, layer = run(tmp_path, client_selector="flad", fraction_train=1.0, num_server_rounds=2)
    assert 0 < layer.memory.picked([str(i) for i in range(SIZE)]).sum() < 2 * SIZE


def test_an_output_layer_without_a_bias_is_refused_by_name():
    keys = {"client-selector": "hics", "model": f"{__name__}:without_bias"}
    with pytest.raises(TaskError, match=r"client-selector = 'hics': its last layer has no bias"):
        build_strategy(read_config(keys))
