"""Callbacks by module:attribute, and what ships for trackers: whatever they do, the run goes on."""

import json
import re
import sys
import types
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

import pytest
from forager.core.config import ConfigError, default_config
from forager.server_app.callbacks.base import Callback, load_callbacks
from forager.server_app.callbacks.prometheus import COUNTERS, GAUGES, metric_name
from forager.tools.engine.local import run_local

ROOT = Path(__file__).parents[3]


class Counts(Callback):
    """Ends the run after two rounds and remembers that."""

    made: ClassVar[list["Counts"]] = []

    def __init__(self, folder: Any) -> None:
        self.folder, self.calls = folder, []
        Counts.made.append(self)

    def on_run_start(self, loop: Any) -> None:
        self.calls.append("start")

    def on_round_end(self, loop: Any) -> str | None:
        self.calls.append(f"round {loop.round}")
        return "seen enough" if loop.round == 2 else None

    def on_run_end(self, loop: Any) -> None:
        self.calls.append(f"end {(self.folder.path / 'rounds.csv').exists()}")


class Breaks(Callback):
    """Fails whenever it can."""

    calls = 0

    def __init__(self, folder: Any) -> None: ...

    def on_run_start(self, loop: Any) -> None:
        raise ConnectionError("the tracker is down")

    def on_round_end(self, loop: Any) -> str | None:
        Breaks.calls += 1
        raise ConnectionError("the tracker is still down")


def not_a_callback(folder: Any) -> object:
    return object()


def played(tmp_path: Path, callbacks: str, **keys: Any) -> Path:
    settings = {"num-clients": 3, "num-server-rounds": 4, "task": "synthetic", "report": False}
    config = {**default_config(), **settings, "output-dir": str(tmp_path), "callbacks": callbacks}
    return run_local({**config, **keys}).folder


def test_they_are_called_in_turn_and_may_end_the_run(tmp_path: Path) -> None:
    Counts.made.clear()
    played(tmp_path, f"{__name__}:Counts")
    assert Counts.made[0].calls == ["start", "round 1", "round 2", "end True"]


def test_what_they_raise_never_ends_a_run(tmp_path: Path, said: list[str]) -> None:
    Breaks.calls = 0
    path = played(tmp_path, f"{__name__}:Breaks")
    assert len((path / "rounds.csv").read_text().splitlines()) > 4
    failures = [line for line in said if "tracker is" in line]
    assert len(failures) == 3
    assert failures[-1].endswith("the run continues without it")
    assert Breaks.calls == 2  # and then never again


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mlfow", "expected module:attribute, or one of mlflow, prometheus, tensorboard, wandb"),
        ("nowhere.at.all:It", "No module named 'nowhere'; use module:attribute, or one of"),
        ("json:nothing", "no attribute 'nothing'"),
        ("json:__name__", "expected a class or function that takes the run folder, found str"),
    ],
)
def test_what_is_not_there_is_an_error_before_anything_starts(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        played(tmp_path, text)
    assert not list(tmp_path.iterdir())


def test_a_maker_must_make_a_callback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a forager\.Callback, got object"):
        played(tmp_path, f"{__name__}:not_a_callback")


def test_a_missing_tracker_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"mlflow": "mlflow", "prometheus": "prometheus_client", "wandb": "wandb"}
    for name, package in packages.items():
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"forager.server_app.callbacks.{name}_runs", raising=False)
        with pytest.raises(ConfigError, match=rf"pip install 'forager-fl\[{name}\]'"):
            load_callbacks(name)


class Recorder(types.ModuleType):
    """Stands in for a tracker's package and writes down what it is told."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.info = types.SimpleNamespace(run_id="run-7")
        self.id = "run-7"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **keywords: Any) -> Any:
            self.told.append((name, args, keywords))
            return self

        return call

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, keywords) for call, args, keywords in self.told if call == name]


@pytest.fixture
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    fake = Recorder(request.param)
    monkeypatch.setitem(sys.modules, request.param, fake)
    place = f"forager.server_app.callbacks.{request.param}_runs"
    monkeypatch.delitem(sys.modules, place, raising=False)
    return fake


@pytest.mark.parametrize("tracker", ["mlflow"], indirect=True)
def test_mlflow_gets_settings_metrics_and_files(tmp_path: Path, tracker: Recorder) -> None:
    path = played(tmp_path, "mlflow")
    assert tracker.of("start_run") == [((), {"run_id": None, "run_name": path.name})]
    ((params,), _) = tracker.of("log_params")[0]
    assert params["num-server-rounds"] == 4
    steps = [keywords["step"] for _, keywords in tracker.of("log_metrics")]
    assert steps == [0, 1, 2, 3, 4]
    assert "accuracy" in tracker.of("log_metrics")[-1][0][0]
    assert ((str(path / "rounds.csv"),), {}) in tracker.of("log_artifact")
    assert tracker.of("end_run") == [(("FINISHED",), {})]


@pytest.mark.parametrize("tracker", ["wandb"], indirect=True)
def test_wandb_gets_settings_and_metrics(tmp_path: Path, tracker: Recorder) -> None:
    path = played(tmp_path, "wandb")
    ((_, init),) = tracker.of("init")
    assert init["name"] == path.name
    assert init["config"]["task"] == "synthetic"
    assert [keywords["step"] for _, keywords in tracker.of("log")] == [0, 1, 2, 3, 4]
    assert tracker.of("finish") == [((), {"exit_code": 0})]


@pytest.mark.parametrize("tracker", ["mlflow"], indirect=True)
def test_a_resumed_run_goes_on_with_its_own(tmp_path: Path, tracker: Recorder) -> None:
    path = played(tmp_path, "mlflow", **{"num-server-rounds": 2})
    played(tmp_path, "mlflow", **{"resume-from": str(path), "num-server-rounds": 3})
    first, second = tracker.of("start_run")
    assert first[1]["run_id"] is None
    assert second[1]["run_id"] == "run-7"
    assert len(tracker.of("log_params")) == 1


LINE = re.compile(r'(forager_\w+)\{run="([^"]*)"\} (\S+)')


def test_prometheus_finds_the_numbers_of_the_last_round(tmp_path: Path) -> None:
    path = played(tmp_path, "prometheus")
    text = (path / "metrics.prom").read_text()
    values = {name: float(value) for name, _, value in LINE.findall(text)}
    assert {run for _, run, _ in LINE.findall(text)} == {path.name}
    assert values["forager_round"] == values["forager_rounds"] == 4
    rows = (path / "rounds.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    assert values["forager_accuracy"] == pytest.approx(float(last["accuracy"]))
    column = rows[0].split(",").index("bytes-up")
    sent = sum(float(row.split(",")[column] or 0) for row in rows[1:])
    assert values["forager_bytes_up_total"] == pytest.approx(sent)
    for line in text.splitlines():
        assert line.startswith(("# HELP forager_", "# TYPE forager_")) or LINE.fullmatch(line)


class Scrapes(Callback):
    """Reads the endpoint in the middle of the run."""

    text = ""

    def __init__(self, folder: Any) -> None: ...

    def on_round_end(self, loop: Any) -> str | None:
        if loop.round == 2:
            with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=10) as answer:
                Scrapes.text = answer.read().decode()
        return None


ADDRESS = "127.0.0.1:29464"


def test_prometheus_is_served_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORAGER_PROMETHEUS", ADDRESS)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    played(tmp_path, f"prometheus, {__name__}:Scrapes")
    assert {n: v for n, _, v in LINE.findall(Scrapes.text)}["forager_round"] == "2.0"


def test_the_callback_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "trackers.md").read_text()
    (code,) = re.findall(r"```python\n# my_callbacks.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_callbacks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = played(tmp_path / "runs", "my_callbacks:Slow")
    assert (path / "rounds.csv").exists()


def test_the_dashboard_shows_only_what_is_exported() -> None:
    board = json.loads((ROOT / "docker" / "grafana" / "forager.json").read_text())
    used = set(re.findall(r"forager_\w+", json.dumps(board["panels"])))
    exported = {metric_name(name) for name in (*GAUGES, *COUNTERS)}
    assert used <= exported | {"forager_round", "forager_rounds"}
    assert exported <= used
