"""The CosAge benchmark asks for runs that can be run, and watches the worst class."""

from pathlib import Path

import pytest
from forager.benchmarks.cosage import SETTINGS, VARIANTS, cells, main, variants
from forager.benchmarks.worst_class import run_watched
from forager.core.config import Scalar, read_config


@pytest.mark.parametrize("data", [None, Path("features.npz")])
def test_every_cell_is_a_config_of_its_own(data: Path | None) -> None:
    for setting in SETTINGS:
        every = cells(setting, data, rounds=3)
        assert len({cell.digest for cell in every}) == len(every)
        for cell in every:
            read_config(dict(cell.config))
    tried = variants(data, rounds=3)
    assert [cell.name for cell in tried] == list(VARIANTS)
    assert len({cell.digest for cell in tried}) == len(tried)
    clients = {read_config(dict(cell.config)).num_clients for cell in tried}
    assert clients == {100}


def test_settings_without_data_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["large"])
    assert "large needs an .npz file of features" in capsys.readouterr().err


def test_the_worst_class_is_watched_in_every_round(tmp_path: Path) -> None:
    settings: dict[str, Scalar] = {
        "num-server-rounds": 2,
        "partition": "iid",
        "output-dir": str(tmp_path),
    }
    result = run_watched(settings)
    assert result.reason == "completed"
    assert [row["round"] for row in result.rounds] == [0, 1, 2]
    assert all(0 <= row["worst-class"] <= row["accuracy"] for row in result.rounds)
    assert result.rounds[2]["worst-class"] > 0
