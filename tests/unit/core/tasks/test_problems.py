"""Kinds of problem: losses, metrics and targets of each, and what is refused."""

import math

import numpy as np
import pytest
import torch
from forager.core.learning.evaluation import evaluate, root_mean_square_losses
from forager.core.learning.gradients import last_layer_gradients
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import Split, TaskError, TaskSpec, load_task
from forager.core.tasks.lazy import LazySplit
from forager.core.tasks.metrics import NAMED, Metric, resolved
from forager.core.tasks.models import build_model
from forager.core.tasks.problems import KINDS, Classification, NextToken, problem_of
from sklearn import metrics as scikit
from torch import nn
from torch.nn import functional

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = {
    "classification": torch.randn(12, 4, generator=GENERATOR),
    "multi-label": torch.randn(12, 3, generator=GENERATOR),
    "regression": torch.randn(12, 2, generator=GENERATOR),
    "segmentation": torch.randn(12, 3, 5, 5, generator=GENERATOR),
    "next-token": torch.randn(12, 6, 7, generator=GENERATOR),
}
TARGETS = {
    "classification": torch.randint(4, (12,), generator=GENERATOR),
    "multi-label": torch.randint(2, (12, 3), generator=GENERATOR).float(),
    "regression": torch.randn(12, 2, generator=GENERATOR),
    "segmentation": torch.randint(3, (12, 5, 5), generator=GENERATOR),
    "next-token": torch.randint(6, (12, 7), generator=GENERATOR),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_per_sample_and_its_gradients_in_the_outputs(kind: str) -> None:
    problem, outputs, targets = problem_of(kind), OUTPUTS[kind], TARGETS[kind]
    losses, gradients = problem.output_gradients(outputs, targets)
    assert losses.shape == (12,)
    for i in range(12):  # a sample's loss depends on it alone
        alone = outputs[i : i + 1].clone().requires_grad_()
        loss = problem.loss(alone, targets[i : i + 1])
        (expected,) = torch.autograd.grad(loss.sum(), alone)
        torch.testing.assert_close(losses[i : i + 1], loss.detach())
        torch.testing.assert_close(gradients[i : i + 1], expected)
    weights = torch.arange(12.0)
    mean = problem.mean_loss(outputs, targets, weights)
    torch.testing.assert_close(mean, (losses * weights).sum() / weights.sum())
    torch.testing.assert_close(problem.mean_loss(outputs, targets, None), losses.mean())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_the_last_layer_are_those_of_autograd(kind: str) -> None:
    width = OUTPUTS[kind][0].numel()
    model = nn.Sequential(nn.Linear(3, width), nn.Unflatten(1, tuple(OUTPUTS[kind].shape[1:])))
    data = Split(torch.randn(12, 3, generator=GENERATOR), TARGETS[kind])
    problem = problem_of(kind)
    rows = last_layer_gradients(model, read_arrays(model), data, problem)
    for i in range(12):
        loss = problem.loss(model(data.x[i : i + 1]), data.y[i : i + 1]).sum()
        expected = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([part.flatten() for part in expected])
        np.testing.assert_allclose(rows[i], flat.numpy(), rtol=1e-4, atol=1e-6)


class Fixed(nn.Module):
    """Gives its input back."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def found(kind: str, *names: str) -> dict[str, float]:
    data = Split(OUTPUTS[kind], TARGETS[kind])
    return evaluate(
        Fixed(), {"unused": np.zeros(1, np.float32)}, data, problem_of(kind), resolved(names)
    )


def test_metrics_of_classification() -> None:
    truth, scores = TARGETS["classification"].numpy(), OUTPUTS["classification"].softmax(1).numpy()
    predicted = scores.argmax(1)
    values = found("classification", "accuracy", "macro-f1", "balanced-accuracy", "auc")
    assert values["accuracy"] == pytest.approx((predicted == truth).mean())
    assert values["macro-f1"] == pytest.approx(scikit.f1_score(truth, predicted, average="macro"))
    expected = scikit.balanced_accuracy_score(truth, predicted)
    assert values["balanced-accuracy"] == pytest.approx(expected)
    expected = scikit.roc_auc_score(truth, scores, multi_class="ovr", average="macro")
    assert values["auc"] == pytest.approx(expected)


def test_metrics_of_regression_and_several_labels() -> None:
    truth, outputs = TARGETS["regression"].numpy(), OUTPUTS["regression"].numpy()
    values = found("regression", "mae", "rmse", "r2")
    assert values["mae"] == pytest.approx(scikit.mean_absolute_error(truth, outputs))
    assert values["r2"] == pytest.approx(scikit.r2_score(truth, outputs))
    assert values["rmse"] == pytest.approx(math.sqrt(values["loss"]))
    labels = (OUTPUTS["multi-label"] > 0).numpy()
    expected = scikit.f1_score(TARGETS["multi-label"], labels, average="macro")
    assert found("multi-label", "macro-f1")["macro-f1"] == pytest.approx(expected)


def test_metrics_of_places() -> None:
    values = found("next-token", "perplexity", "accuracy")
    expected = functional.cross_entropy(OUTPUTS["next-token"], TARGETS["next-token"])
    assert values["perplexity"] == pytest.approx(float(expected.exp()), rel=1e-5)
    truth, predicted = TARGETS["segmentation"].flatten(), OUTPUTS["segmentation"].argmax(1)
    expected = scikit.jaccard_score(truth, predicted.flatten(), average="macro")
    assert found("segmentation", "mean-iou")["mean-iou"] == pytest.approx(expected)


def test_places_that_do_not_count() -> None:
    problem = problem_of("segmentation")
    targets = TARGETS["segmentation"].clone()
    targets[:, 0] = -100
    torch.testing.assert_close(
        problem.loss(OUTPUTS["segmentation"], targets),
        problem.loss(OUTPUTS["segmentation"][:, :, 1:], targets[:, 1:]),
    )
    assert len(problem.predictions(OUTPUTS["segmentation"], targets)[0]) == 12 * 20


def test_a_class_without_samples_has_no_part_in_the_area_under_the_curve() -> None:
    data = Split(torch.eye(3)[:2], torch.tensor([0, 1]))
    arrays = {"unused": np.zeros(1, np.float32)}
    assert evaluate(Fixed(), arrays, data, Classification(), [NAMED["auc"]])["auc"] == 1.0


def test_a_metric_of_ones_own_and_one_that_fails() -> None:
    data, arrays = Split(torch.eye(2), torch.tensor([0, 1])), {"unused": np.zeros(1, np.float32)}
    worst = Metric("worst", compute=lambda outputs, targets: outputs.min())
    assert evaluate(Fixed(), arrays, data, Classification(), [worst])["worst"] == 0
    broken = Metric("broken", compute=lambda outputs, targets: 1 / 0)
    with pytest.raises(
        TaskError, match=r"metric 'broken' on .*\(2, 2\).* failed: ZeroDivisionError"
    ):
        evaluate(Fixed(), arrays, data, Classification(), [broken])


def test_oorts_number() -> None:
    data, arrays = Split(torch.eye(2), torch.tensor([0, 0])), {"unused": np.zeros(1, np.float32)}
    losses = Classification().loss(data.x, data.y)
    expected = float(losses.square().mean().sqrt())
    (found,) = root_mean_square_losses(Fixed(), [arrays], [data], Classification())
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "targets", "expected"),
    [
        ("classification", np.full(3, 0.5), "whole numbers .* data.kind = 'regression'"),
        ("classification", np.zeros((3, 2), int), "one label per sample"),
        ("multi-label", np.array([0, 1, 1]), "a row of 0 and 1 per sample"),
        ("multi-label", np.full((3, 2), 2), "a row of 0 and 1"),
        ("regression", np.array([0, np.nan, 1]), "a finite number"),
        ("regression", np.array(["a", "b", "c"]), "a finite number"),
        ("segmentation", np.array([0, 1, 2]), "for each place of a sample"),
        ("segmentation", np.full((3, 2), -1), "negative classes"),
        ("next-token", np.zeros((3, 4)), "for each place of a sample"),
        ("regression", np.zeros(2), "there are 3 samples"),
    ],
)
def test_targets_that_do_not_fit(kind: str, targets: np.ndarray, expected: str) -> None:
    with pytest.raises(TaskError, match=f"here: .*{expected}"):
        problem_of(kind).checked_targets(targets, 3, "here:")


@pytest.mark.parametrize(
    ("task", "shape", "output", "model"),
    [
        ("diabetes", (10,), (1,), "softmax"),
        ("poems", (40,), (29, 40), "char-gru"),
        ("shapes", (1, 16, 16), (3, 16, 16), "segmenter"),
    ],
)
def test_built_in_tasks(task: str, shape: tuple, output: tuple, model: str) -> None:
    loaded = load_task(TaskSpec(task=task, partition="iid"))
    assert (loaded.input_shape, loaded.output_shape) == (shape, output)
    assert loaded.problem.default_model == model
    data = loaded.client_data(0, 5)
    assert len(data.train) > 20
    assert data.train.x.shape[1:] == shape
    assert loaded.build_model()(data.train.x[:2]).shape == (2, *output)
    again = load_task(TaskSpec(task=task, partition="iid", hidden=65)).client_data(0, 5)
    torch.testing.assert_close(again.train.x, data.train.x)


def test_a_dirichlet_partition_of_numbers_is_uneven() -> None:
    task = load_task(TaskSpec(task="diabetes", alpha=0.1))
    means = [float(task.client_data(i, 5).train.y.mean()) for i in range(5)]
    even = load_task(TaskSpec(task="diabetes", partition="iid"))
    assert np.std(means) > 2 * np.std(
        [float(even.client_data(i, 5).train.y.mean()) for i in range(5)]
    )


def test_noise_on_labels_needs_labels() -> None:
    with pytest.raises(TaskError, match=r"noise = 'closed-set' .* has no classes"):
        load_task(TaskSpec(task="diabetes", noise="closed-set")).server_data()


def test_a_model_for_another_kind_of_problem_is_refused() -> None:
    with pytest.raises(TaskError, match=r"model = 'softmax': .* use a model for this kind"):
        load_task(TaskSpec(task="shapes", model="softmax")).build_model()
    with pytest.raises(TaskError, match="sequences of token ids"):
        build_model("char-gru", (5,), 3)


def test_lazy_samples_give_what_samples_in_memory_give() -> None:
    x, y = torch.randn(20, 3, generator=GENERATOR), torch.arange(20) % 4
    held, lazy = Split(x, y), LazySplit([(x[i], int(y[i])) for i in range(20)], "here")
    plan = [torch.tensor([3, 1, 7]), torch.tensor([0])]
    for some, other in ((held, lazy), (held.select(plan[0]), lazy.select(plan[0]))):
        assert len(some) == len(other)
        torch.testing.assert_close(some.x, other.x)
        torch.testing.assert_close(some.y, other.y)
    pairs = zip(held.follow(plan), lazy.follow(plan), strict=True)
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def test_data_sets_that_cannot_be_used_say_so() -> None:
    with pytest.raises(TaskError, match="here: a generator has no length"):
        LazySplit((i for i in range(3)), "here")  # type: ignore[arg-type]

    def torn(samples: list) -> None:
        raise ValueError("sample 3 has no image")

    with pytest.raises(TaskError, match=r"here: torn could not put 2 samples .*sample 3"):
        next(iter(LazySplit([1, 2], "here", torn).batches(2)))
    with pytest.raises(TaskError, match="pairs of input and target"):
        next(iter(LazySplit([1, 2], "here").batches(2)))


def test_labels_with_a_decimal_point_are_classes_where_that_is_said() -> None:
    labels = problem_of("classification").checked_targets(np.array([0.0, 2.0, 1.0]), 3, "y")
    assert (labels.tolist(), str(labels.dtype)) == ([0, 2, 1], "int64")


@pytest.mark.parametrize("kind", ["segmentation", "next-token"])
def test_classes_may_be_on_the_second_axis_or_on_the_last(kind: str) -> None:
    problem, rng = problem_of(kind), torch.Generator().manual_seed(0)
    second, targets = torch.randn(2, 5, 3, generator=rng), torch.tensor([[0, 4, 2], [1, 1, -100]])
    last = second.movedim(1, -1)
    torch.testing.assert_close(problem.loss(last, targets), problem.loss(second, targets))
    for one, other in zip(
        problem.predictions(last, targets), problem.predictions(second, targets), strict=True
    ):
        torch.testing.assert_close(one, other)
    with pytest.raises(TaskError, match=r"outputs have shape \(2, 5, 4\), .* \(n, classes, ...\)"):
        problem.loss(torch.zeros(2, 5, 4), targets)


def test_where_both_axes_fit_the_model_or_the_task_says_which() -> None:
    problem, targets = NextToken(), torch.tensor([[0, 1, 2]])
    outputs = torch.arange(9.0).reshape(1, 3, 3)
    with pytest.raises(TaskError, match="set classes_last = True or False"):
        problem.check_axes(outputs, targets)
    model = nn.Linear(1, 1)
    problem.heed(model)
    assert problem.classes_last is None
    second = problem.loss(outputs, targets)
    model.classes_last = True  # type: ignore[assignment]
    problem.heed(model)
    problem.check_axes(outputs, targets)
    torch.testing.assert_close(
        problem.loss(outputs, targets), NextToken().loss(outputs.mT, targets)
    )
    assert not torch.allclose(problem.loss(outputs, targets), second)
    with pytest.raises(TaskError, match="with classes_last = True"):
        problem.loss(torch.zeros(1, 5, 3), targets)


@pytest.mark.parametrize(("shape", "expected"), [((0,), (0, 1)), ((0, 3), (0, 3)), ((2,), (2, 1))])
def test_a_device_without_test_rows_may_learn_numbers(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    found = problem_of("regression").checked_targets(np.zeros(shape), shape[0], "y_test")
    assert found.shape == expected
