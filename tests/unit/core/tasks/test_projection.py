"""MOON's projection is a part of the model: trained, sent, and passed through by predictions."""

import pytest
import torch
from forager.core.config import ConfigError, read_config
from forager.core.learning.model_arrays import load_arrays, read_arrays
from forager.core.tasks import TaskError, TaskSpec, load_task
from forager.core.tasks.models import build_model, linear_head, split_at_head
from torch import Tensor, nn


class Residual(nn.Module):
    """A model that is no chain of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.fc = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(x + self.body(x))
        return scores


@pytest.mark.parametrize("model", ["softmax", "mlp", Residual])
def test_the_head_reads_the_projection(model: object) -> None:
    made = build_model(model, (4,), 3, seed=1, projection=8)  # type: ignore[arg-type]
    body, head = split_at_head(made)
    x = torch.ones(2, 4)
    assert body(x).shape == (2, 8)
    assert torch.equal(head(body(x)), made(x))
    assert (head.in_features, head.out_features) == (8, 3)
    assert (head.bias is None) == (model is Residual)
    again = build_model(model, (4,), 3, seed=1, projection=8)  # type: ignore[arg-type]
    load_arrays(again, read_arrays(made))
    assert all(
        torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True)
    )


def test_a_chain_stays_a_chain() -> None:
    assert linear_head(build_model("mlp", (4,), 3, projection=8)) == "6"


def test_a_model_without_a_linear_head_is_refused() -> None:
    spec = TaskSpec(task="shapes", model="segmenter", projection=16)
    with pytest.raises(TaskError, match=r"moon.projection = 16: the model's last layer is Conv2d"):
        load_task(spec).build_model()


def test_only_moon_has_one() -> None:
    assert read_config({"strategy": "moon"}).task_spec().projection == 0
    assert read_config({"strategy": "moon", "moon.projection": 256}).task_spec().projection == 256
    assert read_config({"moon.projection": 64}).task_spec().projection == 0
    with pytest.raises(ConfigError, match=r"moon\.projection"):
        read_config({"strategy": "moon", "moon.projection": -1})
