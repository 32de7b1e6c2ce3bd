"""What a client gets: the model as it came, or tuned, whichever its held-out samples favour."""

import numpy as np
import torch
from forager.core.config import read_config
from forager.core.learning.evaluation import evaluate
from forager.core.learning.model_arrays import read_arrays
from forager.core.learning.serving import served_models
from forager.core.learning.trainer import Trainer
from forager.core.tasks import NextToken, Split
from torch import nn

CONFIG = read_config({"serving": "best", "learning-rate": 0.5, "batch-size": 8})


def _served(labels: torch.Tensor, model: nn.Module) -> tuple[dict, dict, Split]:
    x = torch.stack([labels * 2.0 - 1, torch.ones(len(labels))], dim=1)
    data = Split(x, labels)
    before = read_arrays(model)
    (after,) = served_models(Trainer(model, "serial"), [before], [data], ["0"], CONFIG)
    return before, after, data


def test_a_client_whose_data_the_model_does_not_fit_gets_a_tuned_one():
    model = nn.Sequential(nn.Linear(2, 2))
    nn.init.zeros_(model[0].weight)
    before, after, data = _served(torch.arange(40) % 2, model)
    assert evaluate(model, after, data)["loss"] < evaluate(model, before, data)["loss"] / 2


def test_a_client_whose_labels_are_noise_gets_the_model_as_it_came():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    data = Split(torch.randn(30, 20), torch.randint(0, 2, (30,)))
    before = read_arrays(model)
    (after,) = served_models(Trainer(model, "serial"), [before], [data], ["0"], CONFIG)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_client_with_two_samples_gets_the_model_as_it_came():
    model = nn.Sequential(nn.Linear(2, 2))
    before, after, _ = _served(torch.tensor([0, 1]), model)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_text_is_not_learned_by_heart():
    torch.manual_seed(0)
    windows = torch.randint(0, 12, (70,)).unfold(0, 9, 1)  # random: nothing to learn
    data = Split(windows[:30, :8], windows[:30, 1:])
    new = Split(windows[-20:, :8], windows[-20:, 1:])
    model = nn.Sequential(nn.Embedding(12, 60), nn.Linear(60, 12))
    trainer = Trainer(model, "serial", problem=NextToken())
    before = read_arrays(model)
    config = read_config({"serving": "best", "optimiser.name": "adam", "learning-rate": 0.01})
    (after,) = served_models(trainer, [before], [data], ["0"], config)
    losses = [evaluate(model, arrays, new, NextToken())["loss"] for arrays in (before, after)]
    assert losses[1] < losses[0] + 0.1
