"""What travels of a model, and how clients take their steps."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import (
    check_trainable,
    chosen_device,
    frozen_arrays,
    frozen_digest,
    load_arrays,
    read_arrays,
    training_mode,
    travelling,
)
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split, TaskError
from torch import nn

PLAIN = Plain(read_config({}))


def with_frozen_body() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_frozen_layers_stay_at_home_with_their_buffers() -> None:
    model = with_frozen_body()
    assert all(name.startswith(("1.", "2.", "3.")) for name in travelling(model))
    assert {"2.running_mean", "2.num_batches_tracked"} <= set(travelling(model))
    assert set(travelling(model)) | set(frozen_arrays(model)) == set(model.state_dict())
    training_mode(model)
    assert not model[0][1].training
    assert model[2].training
    data = Split(torch.randn(16, 4), torch.randint(2, (16,)))
    before = {name: array.copy() for name, array in frozen_arrays(model).items()}
    settings = TrainSettings(2, 0, 4, 0.1, 0.9, 0.0)
    (outcome,) = Trainer(model).train([Job(read_arrays(model), data, 1)], settings, PLAIN)
    assert list(outcome.arrays) == travelling(model)
    for name, array in frozen_arrays(model).items():
        np.testing.assert_array_equal(array, before[name])


def test_whole_models_can_be_loaded_but_nothing_that_is_trained_may_be_missing() -> None:
    model = with_frozen_body()
    everything = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    load_arrays(model, everything)
    with pytest.raises(ValueError, match="trainable on the server and on all clients"):
        load_arrays(model, {n: a for n, a in read_arrays(model).items() if n != "3.bias"})
    with pytest.raises(ValueError, match="other"):
        load_arrays(model, {**read_arrays(model), "other": np.zeros(1, np.float32)})
    with pytest.raises(TaskError, match="no trainable parameter"):
        check_trainable(model.requires_grad_(False))


def test_the_checksum_sees_another_backbone() -> None:
    model = with_frozen_body()
    digest = frozen_digest(model)
    with torch.no_grad():
        model[3].weight.add_(1)
    assert frozen_digest(model) == digest != ""
    with torch.no_grad():
        model[0][0].weight.add_(1)
    assert frozen_digest(model) != digest
    assert frozen_digest(nn.Linear(1, 1)) == ""


def trained(model: nn.Module, data: Split, **settings: object) -> dict[str, np.ndarray]:
    chosen = TrainSettings(1, 0, 4, 0.01, 0.0, 0.1, **settings)  # type: ignore[arg-type]
    (outcome,) = Trainer(model, "serial").train([Job(read_arrays(model), data, 1)], chosen, PLAIN)
    return outcome.arrays


@pytest.mark.parametrize(
    ("name", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimisers_are_torchs_own(name: str, theirs: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    data = Split(torch.randn(4, 3), torch.randint(2, (4,)))
    model = nn.Sequential(nn.Linear(3, 2))
    expected = nn.Sequential(nn.Linear(3, 2))
    expected.load_state_dict(model.state_dict())
    optimiser = theirs(expected.parameters(), lr=0.01, weight_decay=0.1)  # type: ignore[call-arg]
    torch.nn.functional.cross_entropy(expected(data.x), data.y).backward()
    torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.05)
    optimiser.step()
    found = trained(model, data, optimiser=name, clip_norm=0.05)
    np.testing.assert_allclose(found["0.weight"], expected[0].weight.detach(), rtol=1e-5)


def test_a_device_is_known_or_refused() -> None:
    assert chosen_device("cpu") == torch.device("cpu")
    with pytest.raises(TaskError, match="device = 'gpu' is not allowed: use auto, cpu, cuda"):
        chosen_device("gpu")
