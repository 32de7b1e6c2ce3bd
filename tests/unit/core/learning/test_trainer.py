"""One client at a time, in threads, or all in one stack: the same result."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.evaluation import evaluate
from forager.core.learning.job import UNUSED, Job, batch_plans
from forager.core.learning.model_arrays import load_arrays, read_arrays
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.objectives.prox import Prox
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split
from torch import nn

SETTINGS = TrainSettings(
    epochs=2, steps=0, batch_size=4, learning_rate=0.1, momentum=0.9, weight_decay=0.01
)


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))


def jobs_for(model, sizes):
    generator = torch.Generator().manual_seed(1)
    arrays = read_arrays(model)
    return [
        Job(
            arrays,
            Split(
                torch.randn(n, 1, 2, 3, generator=generator),
                torch.randint(0, 3, (n,), generator=generator),
            ),
            seed=i,
        )
        for i, n in enumerate(sizes)
    ]


def assert_close(outcomes, reference):
    for a, b in zip(outcomes, reference, strict=True):
        assert a.num_examples == b.num_examples
        assert a.steps == b.steps
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", [Plain, Prox])
@pytest.mark.parametrize("build", [linear, mlp])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_stack_gives_what_one_by_one_gives(build, objective, steps):
    torch.manual_seed(0)
    model = build()
    settings = TrainSettings(2, steps, 4, 0.1, 0.9, 0.01)
    jobs = jobs_for(model, [7, 1, 12, 4, 9])
    rule = objective(read_config({"prox.mu": 0.5}))
    assert Trainer(model).mode == "stack"
    stacked = Trainer(model, "stack").train(jobs, settings, rule)
    assert_close(stacked, Trainer(model, "serial").train(jobs, settings, rule))


@pytest.fixture
def one_thread():
    """Let torch sum in one order: each thread of a pool works on one core anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_threads_give_exactly_what_one_by_one_gives():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    jobs = jobs_for(model, [7, 1, 12, 4, 9])
    rule = Plain(read_config({}))
    threads = Trainer(model, "threads", threads=3).train(jobs, SETTINGS, rule)
    serial = Trainer(model, "serial").train(jobs, SETTINGS, rule)
    for a, b in zip(threads, serial, strict=True):
        assert all(np.array_equal(a.arrays[n], b.arrays[n]) for n in a.arrays)


def test_one_by_one_is_torchs_own_sgd():
    torch.manual_seed(0)
    model = mlp()
    (job,) = jobs_for(model, [10])
    outcome = Trainer(model, "serial").train([job], SETTINGS, Plain(read_config({})))[0]
    load_arrays(model, job.arrays)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for row in batch_plans([10], 4, 2, 0, [job.seed])[0]:
        batch = torch.from_numpy(row[row != UNUSED])
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(job.data.x[batch]), job.data.y[batch]).backward()
        optimiser.step()
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(outcome.arrays[name], tensor.numpy(), rtol=1e-5, atol=1e-7)


def test_a_model_that_cannot_be_stacked_falls_back_and_says_so(said):
    normalised = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten())
    assert Trainer(normalised, "stack").mode == "serial"
    assert "cannot be stacked" in said[0]


def test_dropout_is_seeded_by_the_job_and_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    jobs = jobs_for(model, [10])
    trainer = Trainer(model)
    assert trainer.mode == "serial"
    rule = Plain(read_config({}))
    state = torch.get_rng_state()
    first = trainer.train(jobs, SETTINGS, rule)[0]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = trainer.train(jobs, SETTINGS, rule)[0]
    assert all(np.array_equal(first.arrays[n], again.arrays[n]) for n in first.arrays)


def test_batch_norm_trains_and_keeps_its_counter():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    (outcome,) = Trainer(model).train(jobs_for(model, [8]), SETTINGS, Plain(read_config({})))
    assert outcome.arrays["2.num_batches_tracked"] == 4


def test_jobs_are_not_changed():
    torch.manual_seed(0)
    model = linear()
    jobs = jobs_for(model, [5, 6])
    before = {n: a.copy() for n, a in jobs[0].arrays.items()}
    for mode in ("stack", "serial"):
        Trainer(model, mode).train(jobs, SETTINGS, Prox(read_config({})))
        assert all(np.array_equal(before[n], jobs[0].arrays[n]) for n in before)


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="names on one side only"):
        load_arrays(linear(), {"x": np.zeros(2)})
    arrays = read_arrays(linear())
    arrays["1.bias"] = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="shape"):
        load_arrays(linear(), arrays)


def test_evaluate_counts_correctly():
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    data = Split(torch.eye(2).repeat(3, 1), torch.tensor([0, 1, 0, 1, 1, 0]))
    found = evaluate(model, {"0.weight": 5 * np.eye(2, dtype=np.float32)}, data)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["loss"] > 0


def test_batch_norm_skips_a_lone_last_sample():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    (outcome,) = Trainer(model).train(jobs_for(model, [9]), SETTINGS, Plain(read_config({})))
    assert outcome.arrays["2.num_batches_tracked"] == 4
    assert np.isfinite(outcome.arrays["3.weight"]).all()
