"""A model in the form that trains fastest computes the same."""

import copy

import numpy as np
import torch
from forager.core.config import read_config
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import load_arrays, read_arrays
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.quick_form import quick_form
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer, train_one
from forager.core.tasks import Split
from torch import nn

SETTINGS = TrainSettings(2, 0, 8, 0.05, 0.9, 0.01)
PLAIN = Plain(read_config({}))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(8, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.Flatten(),
        nn.Linear(54, 3),
    )


def jobs():
    generator = torch.Generator().manual_seed(1)
    model = network()
    return [
        Job(
            read_arrays(model),
            Split(
                torch.randn(count, 3, 8, 8, generator=generator),
                torch.randint(0, 3, (count,), generator=generator),
            ),
            seed,
        )
        for seed, count in enumerate([9, 20])
    ]


def test_names_arrays_and_outputs_stay():
    model = network()
    quick = quick_form(model)
    assert isinstance(quick[0][1], nn.MaxPool2d)
    assert isinstance(model[0][1], nn.ReLU)
    before, after = read_arrays(model), read_arrays(quick)
    assert list(before) == list(after)
    for name in before:
        assert np.array_equal(before[name], after[name])
        assert after[name].flags.c_contiguous
    x = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(quick.eval()(x), model.eval()(x))


def test_pooling_before_relu_has_the_same_gradients_to_the_last_bit():
    after = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    before = nn.Sequential(after[0], after[2], after[1])
    x = torch.randn(6, 1, 8, 8).round()  # with ties and zeros
    gradients = []
    for model in (after, before):
        loss = (model(x) ** 2).sum()
        gradients.append(torch.autograd.grad(loss, list(after.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_training_gives_what_the_plain_form_gives():
    for mode in ("serial", "threads"):
        outcomes = Trainer(network(), mode, threads=2).train(jobs(), SETTINGS, PLAIN)
        for job, outcome in zip(jobs(), outcomes, strict=True):
            expected = train_one(network(), job, SETTINGS, PLAIN)
            for name in expected.arrays:
                np.testing.assert_allclose(
                    outcome.arrays[name], expected.arrays[name], rtol=1e-3, atol=1e-5
                )


def test_a_layer_that_somebody_looks_at_keeps_its_place():
    model = network()
    seen = []
    model[0][1].register_forward_hook(lambda layer, inputs, output: seen.append(output.shape))
    quick = quick_form(copy.deepcopy(model))
    load_arrays(quick, read_arrays(model))
    quick(torch.randn(2, 3, 8, 8))
    assert isinstance(quick[0][1], nn.ReLU)
    assert seen[0] == (2, 8, 8, 8)


class Peeking(nn.Module):
    """Asks for a layer by number."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.features[:2](x).mean((2, 3))


def test_layers_of_another_module_keep_their_places():
    torch.manual_seed(0)
    model, x = Peeking(), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(quick_form(model)(x), model(x))
