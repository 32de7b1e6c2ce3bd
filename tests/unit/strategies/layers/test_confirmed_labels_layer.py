"""Once labels are found to be wrong, the server's clean samples train as one more client."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import default_config
from forager.core.wire.arrays import from_record
from forager.server_app.app import build_loop
from forager.strategies.layers.confirmed_labels import ConfirmedLabels
from forager.tools.engine.local_grid import LocalGrid


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, found: bool) -> list[dict[str, Any]]:
    """Return the model before and after the server's part of a round, and its layer."""
    config = {**default_config(), "data-selector": "confirmed", "num-clients": 4}
    config |= {"clients-per-round": 4, "output-dir": str(folder), "local-steps": 1}
    loop = build_loop(LocalGrid(4, config), config)[1]
    seen: list[dict[str, Any]] = []
    aggregate = ConfirmedLabels.aggregate_train

    def watched(self: ConfirmedLabels, server_round: int, replies: Any) -> Any:
        inner = self.inner.aggregate_train

        def before(*arguments: Any) -> Any:
            result = inner(*arguments)
            assert result[0] is not None
            seen.append({"model": from_record(result[0]), "layer": self})
            return result

        monkeypatch.setattr(self.inner, "aggregate_train", before)
        self.doubt.found = found
        result = aggregate(self, server_round, replies)
        assert result[0] is not None
        seen.append({"model": from_record(result[0]), "layer": self})
        return result

    monkeypatch.setattr(ConfirmedLabels, "aggregate_train", watched)
    loop.play_round()
    return seen


def test_the_server_counts_as_one_more_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = played(tmp_path, monkeypatch, found=True)
    clean = first["layer"].clean
    own = clean.trained(first["model"], 1).arrays
    share = len(clean) / (len(clean) + first["layer"]._samples)
    assert 0 < share < 0.5
    for name, before in first["model"].items():
        expected = (1 - share) * before + share * own[name]
        np.testing.assert_allclose(last["model"][name], expected, rtol=1e-4, atol=1e-6)
        assert not np.array_equal(own[name], before)


def test_as_long_as_nothing_is_found_it_only_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = played(tmp_path, monkeypatch, found=False)
    for name, before in first["model"].items():
        np.testing.assert_array_equal(last["model"][name], before)
