"""SCAFFOLD, MOON and Per-FedAvg against what their papers write down."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from forager.client_app.hooks.scaffold import momentum_steps
from forager.core.config import default_config, read_config
from forager.core.learning.job import UNUSED, Job, Outcomes, batch_plans
from forager.core.learning.model_arrays import load_arrays, read_arrays
from forager.core.learning.objectives.moon import Moon
from forager.core.learning.objectives.per_fedavg import PerFedAvg
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.objectives.scaffold import ScaffoldObjective
from forager.core.learning.stack import sgd_
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split, load_task
from forager.core.wire.arrays import from_record
from forager.server_app.app import build_loop
from forager.tools.engine.local_grid import LocalGrid
from torch import nn
from torch.nn import functional

SETTINGS = TrainSettings(
    epochs=2, steps=0, batch_size=4, learning_rate=0.1, momentum=0.9, weight_decay=0.01
)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def job_of(model, size, seed, carried, weighted=False):
    generator = torch.Generator().manual_seed(seed % 2**63)
    data = Split(
        torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)
    )
    weights = np.random.default_rng(seed).uniform(0.5, 2, size).astype(np.float32)
    return Job(read_arrays(model), data, seed, weights if weighted else None, carried)


def other_arrays(model, seed):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(scale=0.3, size=array.shape).astype(np.float32)
        for name, array in read_arrays(model).items()
    }


def test_a_stack_gives_what_one_by_one_gives_with_weights_and_carried_arrays():
    model, rule = mlp(), ScaffoldObjective(read_config({}))
    jobs = [
        job_of(model, n, i, {"control": other_arrays(model, i)}, weighted=i != 1)
        for i, n in enumerate([7, 1, 12, 9])
    ]
    stacked = Trainer(model, "stack").train(jobs, SETTINGS, rule)
    serial = Trainer(model, "serial").train(jobs, SETTINGS, rule)
    for a, b in zip(stacked, serial, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_variate_of_a_constant_gradient_is_that_gradient(momentum):
    """A linear loss has the same gradient everywhere, however the steps are taken."""
    position, velocity, gradient = 1.0, 0.0, 0.7
    for _ in range(6):
        velocity = momentum * velocity + gradient
        position -= 0.1 * velocity
    assert (1.0 - position) / (0.1 * momentum_steps(6, momentum)) == pytest.approx(gradient)


def softmax_gradient(weight, bias, data):
    x, y = data.x.flatten(1).numpy().astype(np.float64), data.y.numpy()
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return {"1.weight": p.T @ x / len(y), "1.bias": p.mean(0)}


def scaffold_by_hand(model, clients, rounds, steps, rate):
    """Algorithm 1 of the paper with option II, all clients in every round."""
    zero = {name: np.zeros_like(array) for name, array in model.items()}
    control, own = zero, [zero] * len(clients)
    for _ in range(rounds):
        trained, changes = [], []
        for i, data in enumerate(clients):
            y = dict(model)
            for _ in range(steps):
                gradient = softmax_gradient(y["1.weight"], y["1.bias"], data)
                y = {n: y[n] - rate * (gradient[n] - own[i][n] + control[n]) for n in y}
            new = {n: own[i][n] - control[n] + (model[n] - y[n]) / (steps * rate) for n in y}
            changes.append({n: new[n] - own[i][n] for n in y})
            trained.append(y)
            own[i] = new
        sizes = np.array([len(data) for data in clients], dtype=np.float64)
        model = {n: np.average([y[n] for y in trained], axis=0, weights=sizes) for n in trained[0]}
        control = {n: control[n] + sum(c[n] for c in changes) / len(clients) for n in control}
    return model, control


@pytest.mark.parametrize("uplink", ["dense", "top-k"])
def test_scaffold_is_the_papers(tmp_path, uplink):
    settings = {
        **default_config(),
        "output-dir": str(tmp_path),
        "strategy": "scaffold",
        "client-selector": "all",
        "num-clients": 4,
        "num-server-rounds": 3,
        "local-steps": 3,
        "batch-size": 5000,  # all of a client's data: every step is the full gradient
        "uplink": uplink,
        "top-k.density": 1.0,
        "local.check-wire": True,
    }
    config = read_config(settings)
    task = load_task(config.task_spec())
    _, loop = build_loop(LocalGrid(4, settings, check_wire=True), settings)
    start = {n: a.astype(np.float64) for n, a in from_record(loop.arrays).items()}
    assert loop.run() == "completed"
    clients = [task.client_data(i, 4).train for i in range(4)]
    model, control = scaffold_by_hand(start, clients, rounds=3, steps=3, rate=0.1)
    for name, array in from_record(loop.arrays).items():
        np.testing.assert_allclose(array, model[name], rtol=1e-3, atol=1e-5)
    layer = loop.strategy
    while type(layer).__name__ != "ScaffoldLayer":
        layer = layer.inner
    for name, array in layer.control.items():
        np.testing.assert_allclose(array, control[name], rtol=1e-3, atol=1e-5)
    plain, _ = scaffold_by_hand(start, clients, rounds=1, steps=9, rate=0.1)
    assert not np.allclose(model["1.weight"], plain["1.weight"], atol=1e-3)


def moon_by_hand(model, job, mu, temperature):
    """Three models side by side, everything computed in every batch."""
    body, head = model[:-1], model[-1]
    received, old = mlp(), mlp()
    load_arrays(received, job.arrays)
    load_arrays(old, job.carried["previous"])
    load_arrays(model, job.arrays)
    parameters = list(model.parameters())
    momenta = [torch.zeros_like(p) for p in parameters]
    for row in batch_plans([len(job.data)], 4, 2, 0, [job.seed])[0]:
        batch = torch.from_numpy(row[row != UNUSED])
        x, y = job.data.x[batch], job.data.y[batch]
        z = body(x)
        with torch.no_grad():
            z_received, z_old = received[:-1](x), old[:-1](x)
        pair = torch.stack(
            [functional.cosine_similarity(z, z_received), functional.cosine_similarity(z, z_old)], 1
        )
        right = torch.zeros(len(batch), dtype=torch.int64)
        loss = functional.cross_entropy(head(z), y)
        loss = loss + mu * functional.cross_entropy(pair / temperature, right)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            sgd_(parameters, gradients, momenta, SETTINGS)
    return read_arrays(model)


@pytest.mark.parametrize("mode", ["stack", "threads", "serial"])
def test_moon_is_the_papers(mode):
    model = mlp()
    jobs = [job_of(model, n, i, {"previous": other_arrays(model, i)}) for i, n in enumerate([9, 7])]
    rule = Moon(read_config({"moon.mu": 3.0}))
    outcomes = Trainer(model, mode, threads=2).train(jobs, SETTINGS, rule)
    for job, outcome in zip(jobs, outcomes, strict=True):
        expected = moon_by_hand(mlp(), job, 3.0, 0.5)
        for name in expected:
            np.testing.assert_allclose(outcome.arrays[name], expected[name], rtol=1e-4, atol=1e-6)


def test_moon_without_a_previous_model_is_plain():
    rule, plain = Moon(read_config({})), Moon(read_config({"moon.mu": 0.0}))
    alone = job_of(mlp(), 9, 0, {})
    job = job_of(mlp(), 9, 0, {"previous": other_arrays(mlp(), 1)})
    (first,) = Trainer(mlp()).train([alone], SETTINGS, rule)
    (without,) = Trainer(mlp()).train([job], SETTINGS, plain)
    (with_it,) = Trainer(mlp()).train([job], SETTINGS, rule)
    assert all(np.array_equal(first.arrays[n], without.arrays[n]) for n in first.arrays)
    assert not np.array_equal(first.arrays["1.weight"], with_it.arrays["1.weight"])


def test_moon_stacks_clients_with_and_without_a_previous_model():
    model, rule = mlp(), Moon(read_config({"moon.mu": 2.0}))
    arrays = read_arrays(model)
    jobs = [
        job_of(model, n, i, {"previous": other_arrays(model, i)} if i % 2 else {}, weighted=i > 1)
        for i, n in enumerate([7, 1, 12, 9])
    ]
    jobs = [replace(job, arrays=arrays) for job in jobs]  # the same object, as in a round
    stacked = Trainer(model, "stack").train(jobs, SETTINGS, rule)
    assert isinstance(stacked, Outcomes)
    serial = Trainer(model, "serial").train(jobs, SETTINGS, rule)
    for a, b in zip(stacked, serial, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=1e-4, atol=1e-6)


def test_moon_says_when_there_is_nothing_to_contrast(said):
    from forager.core.learning.objectives import moon

    moon._warn_if_constant.cache_clear()
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    job = job_of(model, 9, 0, {"previous": other_arrays(model, 1)})
    Trainer(model, "serial").train([job], SETTINGS, Moon(read_config({})))
    assert any("MOON is the same as plain SGD" in line for line in said)


def per_fedavg(rate):
    return PerFedAvg(read_config({"objective": "per-fedavg", "per-fedavg.inner-rate": rate}))


def gradient_at(model, weights, data, positions):
    """The gradient of the mean loss of some samples at other weights, by name."""
    load_arrays(model, weights)
    loss = functional.cross_entropy(model(data.x[positions]), data.y[positions])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return {
        name: gradient.numpy()
        for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True)
    }


def test_per_fedavg_takes_the_gradient_after_an_inner_step_and_applies_it_before(monkeypatch):
    """First-order: w - beta grad f(w - alpha grad f(w; D); D'), D and D' different batches."""
    model, alpha = mlp(), 0.5
    job = job_of(model, 12, 3, {})
    drawn, plain = [], torch.randperm
    monkeypatch.setattr(
        torch, "randperm", lambda *args, **kw: drawn.append(plain(*args, **kw)) or drawn[-1]
    )
    settings = TrainSettings(
        epochs=0, steps=1, batch_size=4, learning_rate=0.1, momentum=0.0, weight_decay=0.0
    )
    (outcome,) = Trainer(model).train([job], settings, per_fedavg(alpha))
    ((outer,),) = batch_plans([12], 4, 0, 1, [job.seed])
    (inner,) = [order[:4] for order in drawn]
    assert set(inner.tolist()) != set(outer.tolist())
    step = gradient_at(model, job.arrays, job.data, inner)
    adapted = {name: array - np.float32(alpha) * step[name] for name, array in job.arrays.items()}
    gradient = gradient_at(model, adapted, job.data, torch.from_numpy(outer))
    for name, array in outcome.arrays.items():
        np.testing.assert_allclose(array, job.arrays[name] - 0.1 * gradient[name], atol=1e-6)


@pytest.mark.parametrize(
    "model", [mlp(), nn.Sequential(nn.LayerNorm(6), mlp())], ids=["chain", "vmap"]
)
def test_stacked_clients_of_per_fedavg_learn_what_each_learns_alone(model):
    jobs = [job_of(model, n, seed, {}, weighted=n == 9) for seed, n in enumerate((9, 1, 5, 12))]
    stacked, alone = (
        Trainer(model, mode).train(jobs, SETTINGS, per_fedavg(0.1)) for mode in ("stack", "serial")
    )
    for one, other in zip(stacked, alone, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        for name, array in one.arrays.items():
            np.testing.assert_allclose(array, other.arrays[name], atol=1e-5)


def test_per_fedavg_repeats_and_is_plain_sgd_without_an_inner_step():
    model = mlp()
    jobs = [job_of(model, n, seed, {}, weighted=n == 9) for seed, n in enumerate((9, 1, 5))]
    first, second = (Trainer(model).train(jobs, SETTINGS, per_fedavg(0.1)) for _ in range(2))
    tiny = Trainer(model, "serial").train(jobs, SETTINGS, per_fedavg(1e-12))
    plain = Trainer(model, "serial").train(jobs, SETTINGS, Plain(read_config({})))
    for one, other in zip(first, second, strict=True):
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name])
    for one, other, moved in zip(tiny, plain, first, strict=True):
        for name, array in one.arrays.items():
            np.testing.assert_allclose(array, other.arrays[name], atol=1e-6)
            assert not np.array_equal(array, moved.arrays[name])


def test_per_fedavg_leaves_frozen_layers_and_works_with_batch_normalisation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    job = job_of(model, 9, 2**63 + 5, {})
    (outcome,) = Trainer(model).train([job], SETTINGS, per_fedavg(0.1))
    assert np.isfinite(outcome.loss)
    assert "0.weight" not in outcome.arrays  # it does not even travel
    torch.testing.assert_close(model[0].weight, before, rtol=0, atol=0)
    assert not np.array_equal(outcome.arrays["3.weight"], job.arrays["3.weight"])
