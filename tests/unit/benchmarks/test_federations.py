"""Real federations are prepared as those who published them did; the data stay where they are."""

import numpy as np
import pytest
from forager.benchmarks.studies import federations
from forager.benchmarks.studies.data import paired_file
from forager.benchmarks.studies.heads import logistic
from forager.tools.engine.simulated_transport import DeviceSpeeds
from forager.tools.experiments.records import SweepError


def patients(count: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    lines = []
    for n in range(count):
        values = [40 + n % 30, n % 2, 1 + n % 4, 120, 200 + n, 0, n % 3, 150, 0, rng.random()]
        lines.append(",".join(map(str, [*values, "?", "?", "?", n % 5])))
    return "\n".join([*lines, ",".join(["?"] * 14)]) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FORAGER_DATA", str(tmp_path))
    (tmp_path / "fed_heart_disease").mkdir()
    for number, name in enumerate(federations.HOSPITALS):
        path = tmp_path / "fed_heart_disease" / f"processed.{name}.data"
        path.write_text(patients(50 + 10 * number, number))
    return tmp_path


def test_hospitals_scale_by_their_own_training_patients(folder):
    arrays = federations.heart(pooled=False)
    assert arrays["x_train"].shape[1] == 13
    total = len(arrays["y_train"]) + len(arrays["y_test"])
    assert total == 50 + 60 + 70 + 80  # the incomplete rows are left out
    assert len(arrays["y_train"]) / total == pytest.approx(0.66, abs=0.01)
    for hospital in range(4):
        own = arrays["x_train"][arrays["user_train"] == hospital]
        assert own.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-4)
    assert set(arrays["y_train"]) == {0, 1}
    pooled = federations.heart(pooled=True)
    assert "user_test" not in pooled
    assert np.array_equal(pooled["x_train"], arrays["x_train"])
    assert not np.allclose(pooled["x_test"], arrays["x_test"])


def test_what_is_missing_is_named(folder):
    with pytest.raises(SweepError, match="has no beijing_air"):
        federations.air()


def test_air_is_tested_on_later_hours_and_gaps_are_filled(folder):
    hours, stations = 2000, 2
    x = np.tile(np.arange(hours, dtype=np.float32)[:, None], (stations, 11))
    x[5, 0] = np.nan
    (folder / "beijing_air").mkdir()
    np.savez(
        folder / "beijing_air" / "beijing_air.npz",
        **{"x": x, "station": np.repeat(np.arange(stations), hours)},
        hour=np.tile(np.arange(hours), stations),
    )
    arrays = federations.air()
    assert arrays["y_train"].max() < arrays["y_test"].min()  # dust grows with time here
    assert np.isfinite(arrays["x_train"]).all()
    assert len(arrays["y_train"]) / (len(arrays["y_train"]) + len(arrays["y_test"])) == (
        pytest.approx(0.7, abs=0.02)
    )


def test_devices_have_the_speeds_of_the_trace(folder):
    (folder / "devices").mkdir()
    np.savez(
        folder / "devices" / "fedscale_devices.npz",
        computation=np.full(9, 50.0),
        communication_kbps=np.full(9, 8.0),
    )
    with federations.real_devices():
        speeds = DeviceSpeeds.drawn(3, 0, 1.0, 1.0, 0.0)
    assert speeds.seconds_per_sample.tolist() == [0.02] * 3
    assert speeds.bytes_per_second.tolist() == [1000.0] * 3
    assert DeviceSpeeds.drawn(1, 0, 1.0, 1.0, 0.0).seconds_per_sample.tolist() == [1.0]


def test_some_labels_become_the_next_one(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, y_train=np.arange(1000) % 10, y_test=np.arange(10))
    with np.load(paired_file(path, 0.4, 0)) as file:
        moved = (file["y_train"] - np.arange(1000)) % 10
        assert np.array_equal(file["y_test"], np.arange(10))
    assert set(moved) == {0, 1}
    assert moved.mean() == pytest.approx(0.4, abs=0.05)


def test_two_classes_by_one_logit():
    import torch

    net, x = logistic((13,), 2), torch.randn(5, 13)
    likely = torch.softmax(net(x), dim=1)[:, 1]
    assert torch.allclose(likely, torch.sigmoid(net.linear(x))[:, 0])
