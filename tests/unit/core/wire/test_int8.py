"""One byte per entry: right on average, small, and refused if damaged."""

import json
from typing import Any

import numpy as np
import pytest
from forager.core.wire import int8
from forager.core.wire.envelope import MalformedUpdate
from forager.tools.engine.local import run_local


def test_rounding_is_right_on_average_and_off_by_less_than_a_step() -> None:
    rng = np.random.default_rng(0)
    update = rng.normal(size=300).astype(np.float32) * np.repeat([1.0, 1e-3, 50.0], 100)
    update = update.astype(np.float32)
    sizes, steps = [100, 100, 100], np.abs(update).reshape(3, 100).max(axis=1).repeat(100) / 127
    said = np.stack([int8.encode(update, sizes, rng)[1] for _ in range(400)])
    assert (np.abs(said - update) <= steps * 1.001).all()
    assert np.abs((said.mean(axis=0) - update) / steps).max() < 0.15


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [2], [7, 1, 1000], [0, 3, 0]], ids=str)
def test_never_more_bytes_than_dense(sizes: list[int]) -> None:
    update = np.ones(sum(sizes), np.float32)
    data, said = int8.encode(update, sizes, np.random.default_rng(0))
    header = 128  # of each array that travels whole
    assert len(data) <= sum(4 * size + header for size in sizes)
    np.testing.assert_allclose(said, update, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(value: float) -> None:
    update = np.float32([1.0, value, 2.0, value])
    said = int8.encode(update, [3, 1], np.random.default_rng(0))[1]
    assert not np.isfinite(said[:3]).any()
    assert not np.isfinite(said[3])
    assert not int8.encode(np.zeros(3, np.float32), [3], np.random.default_rng(0))[1].any()


def test_damaged_bytes_are_refused() -> None:
    data = int8.encode(np.ones(5, np.float32), [4, 1], np.random.default_rng(0))[0]
    for bad in (data[:-1], data + b"0", b"", data[:6] + b"\xff" + data[7:]):
        with pytest.raises(MalformedUpdate, match=r"expected|checksum"):
            int8.decode(bad, [4, 1])


def events(result: Any, kind: str) -> list[dict[str, Any]]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.parametrize("more", [{}, {"downlink": "changes"}, {"privacy": "local-dp"}], ids=str)
def test_a_run_sends_a_quarter_and_resumes_exactly(tmp_path: Any, more: dict[str, Any]) -> None:
    keys = {"output-dir": str(tmp_path), "report": False, "num-server-rounds": 4, **more}
    keys |= {"num-clients": 6, "local.check-wire": True, "uplink": "int8", "checkpoint.keep": 9}
    keys |= {"dp.noise-multiplier": 0.01, "model": "mlp"}
    whole = run_local({**keys, "run-name": "whole"})
    dense = run_local({**keys, "uplink": "dense", "run-name": "dense"})
    up = [
        sum(e["bytes-up"] for e in events(r, "exchange") if e["kind"] == "train")
        for r in (dense, whole)
    ]
    assert up[1] < 0.35 * up[0]
    assert not events(whole, "quarantined")
    accuracy = [r.rounds[-1]["accuracy"] for r in (dense, whole)]
    assert accuracy[1] > accuracy[0] - 0.05
    half = run_local({**keys, "num-server-rounds": 2, "run-name": "half"})
    again = run_local({**keys, "resume-from": str(half.folder)})
    models = [(r.folder / "model.safetensors").read_bytes() for r in (whole, again)]
    assert models[0] == models[1]
