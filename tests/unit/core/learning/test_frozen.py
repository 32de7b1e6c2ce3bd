"""Parameters that need no gradient stay as they are, whatever trains the others."""

import numpy as np
import torch
from forager.core.config import read_config
from forager.core.learning.job import Job
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.objectives.plain import Plain
from forager.core.learning.stack import can_stack
from forager.core.learning.train_settings import train_settings
from forager.core.learning.trainer import Trainer
from forager.core.tasks import Split
from torch import nn


def frozen_first() -> nn.Sequential:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model[1].requires_grad_(False)
    return model


def test_a_frozen_layer_is_not_trained() -> None:
    model = frozen_first()
    assert not can_stack(model)
    trainer = Trainer(model, "stack")
    data = Split(torch.randn(12, 4), torch.randint(0, 2, (12,)))
    before, config = read_arrays(model), read_config({})
    assert list(before) == ["3.weight", "3.bias"]
    held = model[1].weight.clone()
    jobs = [Job(before, data, seed) for seed in (1, 2)]
    for outcome in trainer.train(jobs, train_settings(config, 1), Plain(config)):
        assert outcome.arrays.keys() == before.keys()
        torch.testing.assert_close(model[1].weight, held, rtol=0, atol=0)
        assert not np.array_equal(outcome.arrays["3.weight"], before["3.weight"])
