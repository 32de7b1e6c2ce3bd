"""Mean and spread of all clients' inputs, from what each reports of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from fakes import FakeGrid, Notes, answer
from flwr.app import Message, MetricRecord
from forager.client_app.handlers.questions import moments
from forager.core.log.events import InputsScaled, Quarantined
from forager.core.tasks import Split, TaskError, TaskSpec, load_task
from forager.core.tasks.lazy import LazySplit
from forager.core.tasks.scaling import Scaling, scaled
from forager.core.wire.keys import MEAN, METRICS, NUM_EXAMPLES, SPREAD
from forager.server_app.input_scaling import Moments, ask_for_scaling, combined
from forager.strategies.federation.federation import Federation

KEYS = [str(i) for i in range(6)]
SIZES = [500.0, 2.0]  # of the two features


def samples(key: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What a client holds: another number of samples, around another mean."""
    rng = np.random.default_rng(int(key))
    return rng.normal(int(key), 1.0, size=(20 + 10 * int(key), 2)) * SIZES


def report(data: Any) -> dict[str, Any]:
    return {
        NUM_EXAMPLES: len(data),
        MEAN: data.mean(axis=0).tolist(),
        SPREAD: data.std(axis=0).tolist(),
    }


def ask(
    liars: dict[str, dict[str, Any]], keys: Sequence[str] = KEYS
) -> tuple[Scaling | None, Notes, Federation]:
    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        said = {**report(samples(key)), **liars.get(key, {})}
        return [answer(message, {METRICS: MetricRecord(said)})]

    grid = FakeGrid(keys, dict.fromkeys(keys, behave))
    federation, notes = Federation(), Notes()
    federation.journal = notes
    found, _ = ask_for_scaling(federation, grid, width=2, seed=0, weight_factor=10.0)
    return found, notes, federation


def test_honest_clients_give_what_one_place_would() -> None:
    found, notes, _ = ask({})
    everything = np.concatenate([samples(key) for key in KEYS])
    assert found is not None
    np.testing.assert_allclose(found.mean, everything.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.spread, everything.std(axis=0), rtol=1e-6)
    assert notes.of(InputsScaled)[0].clients == len(KEYS)


@pytest.mark.parametrize(
    "lie",
    [
        {MEAN: [1e9, 0.0]},
        {SPREAD: [1e12, 1.0]},
        {MEAN: [float("nan"), 0.0]},
        {MEAN: [float("inf"), 0.0]},
        {SPREAD: [-1.0, 1.0]},
        {MEAN: [1.0]},
        {MEAN: 3.0},
        {NUM_EXAMPLES: 0},
        {NUM_EXAMPLES: 1e300},
    ],
)
def test_one_liar_is_set_aside_and_changes_little(lie: dict[str, Any]) -> None:
    found, notes, federation = ask({"2": lie})
    honest, _, _ = ask({})
    assert found is not None
    assert honest is not None
    assert [event.client for event in notes.of(Quarantined)] == ["2"]
    np.testing.assert_allclose(found.spread, honest.spread, rtol=0.3)
    assert federation.awake([federation.roster._holders["2"]], 1)  # it may train


def test_of_two_clients_none_is_believed() -> None:
    """One of two that lies would ruin the inputs of both; of three it is set aside."""
    lie = {MEAN: [1e9, 0.0]}
    assert ask({}, KEYS[:2])[0] is None
    assert ask({"1": lie}, KEYS[:2])[0] is None
    found, notes, _ = ask({"1": lie}, KEYS[:3])
    assert found is not None
    assert [event.client for event in notes.of(Quarantined)] == ["1"]


def test_a_liar_below_the_limit_is_bounded() -> None:
    usual = Moments(50, np.array([20.0]), np.array([5.0]))
    liar = Moments(1e9, np.array([20.0 + 90 * 5.0]), np.array([90 * 5.0]))
    mean, spread = combined([usual] * 9 + [liar], weight_factor=10.0)
    assert abs(mean[0] - 20) < 6 * 5
    assert spread[0] < 12 * 5


def test_another_unit_is_named() -> None:
    _, notes, _ = ask({"3": report(samples("3") * 1e4)})
    (event,) = notes.of(Quarantined)
    assert "feature 0" in event.reason
    assert "another unit" in event.reason


def test_rare_features_are_nobodys_fault() -> None:
    """Most clients never see a word; who does is not set aside."""
    none = Moments(50, np.zeros(1), np.zeros(1))
    some = Moments(50, np.array([0.2]), np.array([0.4]))
    mean, spread = combined([none] * 8 + [some] * 2)
    assert mean[0] == pytest.approx(0.04)
    assert spread[0] > 0.1


def test_a_constant_feature_is_only_shifted() -> None:
    scaling = Scaling.of_moments(np.array([7.0]), np.array([0.0]))
    assert scaling.apply(torch.tensor([[7.0], [8.0]])).tolist() == [[0.0], [1.0]]


def test_moments_of_images_are_per_channel() -> None:
    x = torch.rand(3000, 3, 4, 5)  # more than one batch
    count, mean, spread = moments(Split(x, torch.zeros(3000)))
    assert count == 3000
    np.testing.assert_allclose(mean, x.double().mean(dim=(0, 2, 3)), rtol=1e-9)
    np.testing.assert_allclose(spread, x.double().std(dim=(0, 2, 3), correction=0), rtol=1e-9)


def test_lazy_samples_are_scaled_as_they_are_read() -> None:
    lazy = LazySplit([(torch.tensor([10.0 * i]), i) for i in range(4)], "an example")
    scaling = Scaling(np.array([10.0]), np.array([5.0]))
    part = scaled(lazy, scaling).select(torch.tensor([1, 3]))
    assert [x.flatten().tolist() for x, _ in part.batches(2)] == [[0.0, 4.0]]
    assert part.x.flatten().tolist() == [0.0, 4.0]


def test_a_task_scales_all_its_data_alike() -> None:
    plain = load_task(TaskSpec(task="synthetic"))
    width = plain.input_shape[0]
    scaling = Scaling(np.full(width, 2.0), np.full(width, 4.0))
    task = load_task(TaskSpec(task="synthetic", scale=scaling.text()))
    for ours, theirs in (
        (task.server_data().test, plain.server_data().test),
        (task.server_data().validation, plain.server_data().validation),
        (task.client_data(1, 5).train, plain.client_data(1, 5).train),
    ):
        torch.testing.assert_close(ours.x, (theirs.x - 2) / 4)
        assert torch.equal(ours.y, theirs.y)
    assert task._data is plain._data


@pytest.mark.parametrize(
    "text", ["standard:", "standard:???", "standard:AAAA", "standard:AACAfw=="]
)
def test_a_damaged_setting_is_refused(text: str) -> None:
    with pytest.raises(TaskError, match=r"data\.scale"):
        load_task(TaskSpec(task="synthetic", scale=text)).client_data(0, 5)
