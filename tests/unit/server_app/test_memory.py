"""What does not fit into memory is refused before it starts, with the number that it would need."""

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeGrid
from forager.core.config import ConfigError, default_config, read_config
from forager.server_app import memory
from forager.server_app.app import build_loop
from forager.server_app.memory import check_memory, memory_limit
from forager.tools.engine.local_grid import LocalGrid

KEYS = [str(i) for i in range(50)]
MODEL = 51 * 2**20
ALL = {"num-clients": 50, "clients-per-round": 50}


@pytest.fixture(autouse=True)
def _two_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "limit").write_text(f"{2 * 2**30}\n")
    monkeypatch.setattr(memory, "_LIMITS", (str(tmp_path / "limit"), str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("keys", "named", "gigabytes"),
    [
        ({"aggregator": "median"}, "aggregator = 'median'", "8.8 GB"),
        ({"aggregator": "bulyan", "aggregation.malicious": 2}, "aggregator = 'bulyan'", "13.5 GB"),
        ({"strategy": "scaffold"}, "objective = 'scaffold'", "16.2 GB"),
        ({"uplink": "top-k"}, "uplink = 'top-k'", "7.5 GB"),
        ({"downlink": "changes"}, "downlink = 'changes'", "3.8 GB"),
        ({"leave-one-out": True}, "leave-one-out = true", "3.8 GB"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_what_it_needs(
    keys: dict[str, Any], named: str, gigabytes: str
) -> None:
    with pytest.raises(ConfigError, match=named) as refusal:
        check_memory(read_config({**ALL, **keys}), MODEL, LocalGrid(50, {}))
    assert f"about {gigabytes} of memory, and has 2.0 GB" in str(refusal.value)


@pytest.mark.parametrize(
    ("keys", "gigabytes"),
    [
        ({"aggregator": "krum"}, "8.8 GB"),
        ({"aggregator": "bulyan"}, "13.5 GB"),
        ({"aggregator": "clipped-mean"}, "11.0 GB"),
        ({"aggregator": "fltrust"}, "8.8 GB"),
        ({"strategy": "ios"}, "3.8 GB"),
        ({"leave-one-out": True}, "3.8 GB"),
    ],
)
def test_so_is_one_with_devices(keys: dict[str, Any], gigabytes: str) -> None:
    with pytest.raises(ConfigError, match=f"about {gigabytes} of memory, and has 2.0 GB"):
        check_memory(read_config({**ALL, **keys}), MODEL, FakeGrid(KEYS))


@pytest.mark.parametrize("aggregator", ["median", "trimmed-mean"])
def test_replies_of_devices_wait_on_disk_where_entries_are_aggregated_one_by_one(
    aggregator: str,
) -> None:
    check_memory(read_config({**ALL, "aggregator": aggregator}), MODEL, FakeGrid(KEYS))


@pytest.mark.parametrize("keys", [{}, {"strategy": "scaffold"}, {"strategy": "forager"}])
def test_what_devices_keep_is_not_the_servers(keys: dict[str, Any]) -> None:
    check_memory(read_config({**ALL, **keys}), MODEL, FakeGrid(KEYS))


def test_who_is_asked_counts_not_who_is_there() -> None:
    config = {"aggregator": "qfedavg", "num-clients": 50, "clients-per-round": 4}
    check_memory(read_config(config), MODEL, FakeGrid(KEYS))


def test_the_limit_is_the_containers_or_the_machines(tmp_path: Path) -> None:
    assert memory_limit() == 2 * 2**30
    (tmp_path / "limit").write_text("max\n")
    assert memory_limit() > 2**28


def test_it_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    keys = {**default_config(), **ALL, "aggregator": "krum", "output-dir": str(tmp_path / "runs")}
    with pytest.raises(ConfigError, match="GB of memory"):
        build_loop(FakeGrid(KEYS), {**keys, "model": "mlp", "net.hidden": 200_000})
    assert not (tmp_path / "runs").exists()
