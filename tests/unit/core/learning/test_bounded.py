"""Generalised and symmetric cross-entropy: the papers' formulas, in every way of training."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.objectives.bounded import Gce, Sce
from forager.core.learning.train_settings import TrainSettings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split
from forager.core.tasks.errors import TaskError
from forager.core.tasks.own_app import AppProblem
from forager.core.tasks.problems import Classification
from forager.strategies.build import build_strategy
from forager.tools.engine import run_local
from torch import nn

SETTINGS = TrainSettings(2, 0, 4, 0.1, 0.9, 0.01)
RULES = [Gce(read_config({"gce.q": 0.4})), Sce(read_config({}))]


def by_definition(rule, outputs, targets):
    """As the papers write them: over one-hot labels, with log 0 = A."""
    predicted = outputs.softmax(1)
    one_hot = nn.functional.one_hot(targets, outputs.shape[1]).float()
    if isinstance(rule, Gce):
        return (1 - (predicted * one_hot).sum(1) ** 0.4) / 0.4
    reverse = -(predicted * torch.where(one_hot > 0, 0.0, -4.0)).sum(1)
    return 0.1 * -(one_hot * predicted.log()).sum(1) + reverse


@pytest.mark.parametrize("rule", RULES)
def test_losses_and_gradients_are_those_of_the_papers(rule):
    torch.manual_seed(0)
    outputs = (3 * torch.randn(20, 5)).requires_grad_()
    targets = torch.randint(0, 5, (20,))
    expected = by_definition(rule, outputs, targets)
    (right,) = torch.autograd.grad(expected.sum(), outputs)
    problem = rule.minimised(Classification())
    losses, gradients = problem.output_gradients(outputs.detach(), targets)
    assert problem.closed_form
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients, right, rtol=1e-4, atol=1e-5)


def test_a_label_that_the_model_rules_out_moves_it_no_more():
    outputs, wrong = torch.tensor([[30.0, 0.0]]), torch.tensor([1])
    _, plain = Classification().output_gradients(outputs, wrong)
    losses, gradients = RULES[0].minimised(Classification()).output_gradients(outputs, wrong)
    assert float(losses) == pytest.approx(1 / 0.4, rel=1e-4)
    assert gradients.abs().max() < 1e-4 * plain.abs().max()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
        lambda: nn.Sequential(nn.Conv2d(1, 4, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
    ],
)
def test_a_stack_gives_what_one_by_one_gives(rule, build):
    torch.manual_seed(0)
    model = build()
    arrays = read_arrays(model)
    jobs = [
        Job(arrays, Split(torch.randn(n, 1, 2, 3), torch.randint(0, 3, (n,))), n, weights)
        for n, weights in [(7, None), (12, np.linspace(0.5, 2, 12, dtype=np.float32)), (1, None)]
    ]
    stacked = Trainer(model, "stack", 1).train(jobs, SETTINGS, rule)
    serial = Trainer(model, "serial", 1).train(jobs, SETTINGS, rule)
    for a, b in zip(stacked, serial, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gce", "sce"])
def test_it_needs_a_class_per_sample(name):
    with pytest.raises(TaskError, match=rf"objective = '{name}': .* 'diabetes' is regression"):
        build_strategy(read_config({"objective": name, "task": "diabetes"}))


def test_with_wrong_labels_it_ends_above_cross_entropy(tmp_path):
    keys = {"noise": "closed-set", "corruption.rate": 0.4, "num-server-rounds": 20}
    keys |= {"learning-rate": 2.0, "report": False, "output-dir": str(tmp_path)}
    ends = {
        name: run_local({**keys, "objective": name, "run-name": name}).rounds[-1]["accuracy"]
        for name in ("sgd", "gce", "sce")
    }
    assert min(ends["gce"], ends["sce"]) > ends["sgd"] + 0.05


def test_it_works_in_somebody_elses_app():
    """With a loss of the app's own, too: bent as cross-entropy is."""
    model = nn.Sequential(nn.Linear(2, 3))
    app = AppProblem(model, loss=nn.CrossEntropyLoss())
    job = Job(read_arrays(model), Split(torch.randn(9, 2), torch.randint(0, 3, (9,))), 0)
    outcomes = [
        Trainer(model, "stack", 1, problem).train([job], SETTINGS, RULES[0])[0]
        for problem in (app, Classification())
    ]
    np.testing.assert_allclose(
        outcomes[0].arrays["0.weight"], outcomes[1].arrays["0.weight"], atol=1e-5
    )
