"""Stacks of models that are not chains of linear layers: the same result as one by one."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning import trainer as trainer_module
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.objectives.moon import Moon
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.objectives.prox import Prox
from forager.core.learning.objectives.scaffold import ScaffoldObjective
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.learning.vmap_stack import tried
from forager.core.tasks import Split
from forager.core.tasks.problems import NextToken
from torch import nn
from torch.nn import functional

SETTINGS = TrainSettings(
    epochs=2, steps=0, batch_size=4, learning_rate=0.1, momentum=0.9, weight_decay=0.01
)
PLAIN = Plain(read_config({}))
LENGTHS = [7, 1, 12, 4, 9]
PIXELS, TOKENS = (1, 4, 4), 5


class Attention(nn.Module):
    """Embedding, layer norm, one head of attention, and a linear layer at every place."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4)
        self.norm = nn.LayerNorm(4)
        self.mix = nn.Linear(4, 12)
        self.head = nn.Linear(4, TOKENS)

    def forward(self, tokens):
        x = self.embedding(tokens)
        query, key, value = self.mix(self.norm(x)).chunk(3, -1)
        scores = self.head(x + functional.scaled_dot_product_attention(query, key, value))
        return scores.movedim(2, 1)


class Centred(nn.Module):
    """Looks at the other samples of the batch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.head(x - x.mean(0))


class Picky(nn.Module):
    """Takes another way for some data, which vmap cannot."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        if len(x) > 3 and float(x.max()) > 0:
            x = 2 * x
        return self.head(x.flatten(1))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.GELU(),
        nn.Linear(6, 3),
    )


def frozen_first():
    model = convolutional()
    model[0].requires_grad_(False)
    return model


def seeded(build):
    torch.manual_seed(0)
    return build()


def samples(model, count, generator):
    if isinstance(model, Attention):
        tokens = torch.randint(0, TOKENS, (count, 7), generator=generator)
        return Split(tokens[:, :-1], tokens[:, 1:])
    labels = torch.randint(0, 3, (count,), generator=generator)
    return Split(torch.randn(count, *PIXELS, generator=generator), labels)


def jobs_for(model, lengths=LENGTHS, weighted=False, carried=""):
    generator, rng = torch.Generator().manual_seed(1), np.random.default_rng(2)
    arrays = read_arrays(model)
    jobs = []
    for seed, count in enumerate(lengths):
        own = {n: rng.normal(scale=0.1, size=a.shape).astype(a.dtype) for n, a in arrays.items()}
        weights = rng.uniform(0.5, 2, count).astype(np.float32) if weighted and seed != 1 else None
        brought = {carried: own} if carried else {}
        jobs.append(Job(arrays, samples(model, count, generator), seed, weights, brought))
    return jobs


def problem_of(model):
    return NextToken() if isinstance(model, Attention) else None


def assert_close(outcomes, reference):
    for a, b in zip(outcomes, reference, strict=True):
        assert (a.num_examples, a.steps) == (b.num_examples, b.steps)
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.arrays.keys() == b.arrays.keys()
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=1e-3, atol=1e-5)


@pytest.fixture
def stacks(monkeypatch):
    """Count the clients in each stack that is trained."""
    counted = []
    real = trainer_module.train_stack

    def counting(model, jobs, *arguments):
        counted.append(len(jobs))
        return real(model, jobs, *arguments)

    monkeypatch.setattr(trainer_module, "train_stack", counting)
    return counted


@pytest.mark.parametrize(
    ("build", "objective", "carried", "weighted", "steps"),
    [
        (convolutional, Plain, "", False, 0),
        (convolutional, Prox, "", True, 3),
        (convolutional, ScaffoldObjective, "control", True, 0),
        (frozen_first, Plain, "", False, 0),
        (Attention, Plain, "", False, 0),
        (Attention, ScaffoldObjective, "control", True, 3),
    ],
)
def test_a_stack_gives_what_one_by_one_gives(
    build, objective, carried, weighted, steps, stacks, said
):
    """Clients of different lengths, with or without a coreset's weights."""
    model = seeded(build)
    settings = TrainSettings(2, steps, 4, 0.1, 0.9, 0.01)
    jobs = jobs_for(model, weighted=weighted, carried=carried)
    rule = objective(read_config({"prox.mu": 0.5}))
    stacked = Trainer(model, "stack", 1, problem_of(model)).train(jobs, settings, rule)
    assert stacks == [len(LENGTHS)]
    assert not said
    assert_close(
        stacked, Trainer(model, "serial", 1, problem_of(model)).train(jobs, settings, rule)
    )


@pytest.mark.parametrize("build", [Centred, Picky])
def test_a_model_that_would_give_something_else_in_a_stack_is_trained_one_by_one(build, said):
    model = seeded(build)
    jobs = jobs_for(model)
    stacked = Trainer(model, "stack", 1).train(jobs, SETTINGS, PLAIN)
    assert_close(stacked, Trainer(model, "serial", 1).train(jobs, SETTINGS, PLAIN))
    assert len(said) == 1
    assert "one by one" in said[0]


def test_the_trial_says_why_not():
    model = Centred()
    assert "gradient of head" in tried(model, Trainer(model).problem, jobs_for(model)).reason


def test_moon_is_not_stacked(stacks):
    model = seeded(convolutional)
    jobs = jobs_for(model, carried="previous")
    Trainer(model, "stack", 1).train(jobs, SETTINGS, Moon(read_config({})))
    assert not stacks


def test_auto_stacks_many_clients_with_little_work(stacks):
    model = seeded(convolutional)
    light = Trainer(model, "auto", 1)
    light.train(jobs_for(model, [4] * 15), SETTINGS, PLAIN)
    assert not stacks
    light.train(jobs_for(model, [4] * 16), SETTINGS, PLAIN)
    assert stacks == [16]


def test_auto_does_not_stack_much_work(stacks):
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.Flatten(), nn.Linear(16 * 64, 3))
    data = Split(torch.zeros(32, 1, 8, 8), torch.zeros(32, dtype=torch.int64))
    trainer = Trainer(model, "auto", 1)
    jobs = [Job(read_arrays(model), data, seed) for seed in range(16)]
    trainer.train(jobs, TrainSettings(1, 1, 32, 0.1, 0.0, 0.0), PLAIN)
    assert not stacks
    assert trainer._trial.saved == 4 * (64 + 16 * 64)  # what the two layers are given
    trainer.train(jobs, TrainSettings(1, 1, 4, 0.1, 0.0, 0.0), PLAIN)
    assert stacks == [16]


def test_a_stack_has_bounded_memory(stacks, monkeypatch):
    model = seeded(convolutional)
    monkeypatch.setattr(trainer_module, "_STACK_BYTES", 20_000)
    jobs = jobs_for(model, [8] * 6)
    stacked = Trainer(model, "stack", 1).train(jobs, SETTINGS, PLAIN)
    assert len(stacks) > 1
    assert sum(stacks) == 6
    assert_close(stacked, Trainer(model, "serial", 1).train(jobs, SETTINGS, PLAIN))
