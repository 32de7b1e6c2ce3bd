"""Squared gradients of samples over local training: by plain loops, and by the trainer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.job import UNUSED, Outcomes, batch_plans
from forager.core.learning.objectives.moon import Moon
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.objectives.prox import Prox
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from test_trainer import jobs_for, linear, mlp
from torch import nn

SETTINGS = TrainSettings(
    epochs=2, steps=0, batch_size=4, learning_rate=0.1, momentum=0.9, weight_decay=0.01, squares=1
)


def cnn():
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))


def by_hand(build, job, settings):
    """Train by SGD with momentum, and square the gradient of each sample of each step."""
    model = build()
    model.load_state_dict({name: torch.from_numpy(a) for name, a in job.arrays.items()})
    parameters, loss = list(model.parameters()), nn.functional.cross_entropy
    momenta = [torch.zeros_like(p) for p in parameters]
    steps = []
    (plan,) = batch_plans([len(job.data)], settings.batch_size, settings.epochs, 0, [job.seed])
    for row in plan:
        picked = [int(position) for position in row if position != UNUSED]
        each = []
        for i in picked:
            own = torch.autograd.grad(
                loss(model(job.data.x[i : i + 1]), job.data.y[i : i + 1]), parameters
            )
            each.append(torch.cat([g.flatten() for g in own]))
        steps.append(torch.stack(each).square().mean(0).numpy())
        mean = torch.autograd.grad(loss(model(job.data.x[picked]), job.data.y[picked]), parameters)
        with torch.no_grad():
            for p, g, m in zip(parameters, mean, momenta, strict=True):
                m.mul_(settings.momentum).add_(g + settings.weight_decay * p)
                p.sub_(settings.learning_rate * m)
    return np.stack(steps)


@pytest.mark.parametrize("build", [linear, mlp, cnn])
@pytest.mark.parametrize("sizes", [[9], [10, 3, 7, 1] * 5], ids=["a device", "many"])
def test_they_are_the_mean_over_steps_of_the_mean_over_samples(build, sizes):
    torch.manual_seed(0)
    model = build()
    jobs = jobs_for(model, sizes)
    outcomes = Outcomes.of(Trainer(model).train(jobs, SETTINGS, Plain(read_config({}))))
    assert outcomes.squares.shape == (len(sizes), 1, sum(p.numel() for p in model.parameters()))
    for job, found in zip(jobs, outcomes, strict=True):
        wanted = by_hand(build, job, SETTINGS).mean(0)
        np.testing.assert_allclose(found.squares[0], wanted, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("build", [mlp, cnn])
def test_parts_take_turns_and_add_up_and_late_steps_may_be_left_out(build):
    torch.manual_seed(0)
    model = build()
    jobs = jobs_for(model, [10] * 20)
    settings = replace(SETTINGS, squares=3, squared_steps=5)
    outcomes = Outcomes.of(Trainer(model).train(jobs, settings, Plain(read_config({}))))
    for job, found in zip(jobs, outcomes, strict=True):
        steps = by_hand(build, job, SETTINGS)[:5] / 5
        wanted = [steps[[0, 3]].sum(0), steps[[1, 4]].sum(0), steps[2]]
        np.testing.assert_allclose(found.squares, wanted, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("objective", "weighted"), [(Moon, False), (Plain, True), (Prox, False)])
def test_they_are_of_the_loss_alone_however_it_is_trained(objective, weighted):
    """Neither what the objective adds nor the weights of samples are in them."""
    torch.manual_seed(0)
    model, config = mlp(), read_config({})
    jobs = jobs_for(model, [6] * 20)
    weights = np.linspace(0, 1, 6, dtype=np.float32) if weighted else None
    carried = dict.fromkeys(objective(config).carries, jobs[0].arrays) | {
        "previous": jobs[0].arrays
    }
    jobs = [replace(job, weights=weights, carried=carried) for job in jobs]
    first = replace(SETTINGS, squared_steps=1)  # before the objective has moved the model
    outcomes = Outcomes.of(Trainer(model).train(jobs, first, objective(config)))
    for job, found in zip(jobs, outcomes, strict=True):
        wanted = by_hand(mlp, job, SETTINGS)[0]
        np.testing.assert_allclose(found.squares[0], wanted, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("build", [mlp, cnn])
def test_looking_does_not_change_the_training(build):
    torch.manual_seed(0)
    model = build()
    jobs = jobs_for(model, [5, 8] * 10)
    plain = Trainer(model, "serial").train(
        jobs, replace(SETTINGS, squares=0), Plain(read_config({}))
    )
    seen = Trainer(model, "serial").train(jobs, SETTINGS, Plain(read_config({})))
    for a, b in zip(plain, seen, strict=True):
        assert a.squares is None
        for name in a.arrays:
            np.testing.assert_array_equal(a.arrays[name], b.arrays[name])
