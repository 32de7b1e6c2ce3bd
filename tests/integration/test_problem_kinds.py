"""Every kind of problem under every family of methods, and docs/problems.md as it stands."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from forager.client_app.app import answer_one
from forager.core.config import ConfigError, default_config, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import TaskError, TaskSpec, load_task
from forager.core.wire.arrays import to_record
from forager.tools.cli.app import main
from forager.tools.engine import run_local
from safetensors.numpy import load_file

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

SMALL = {
    "num-clients": 5,
    "clients-per-round": 3,
    "num-server-rounds": 2,
    "round.give-up-after": 0.1,
    "report": False,
    "coreset.first-round": 0,
    "ios.samples": 4,
    "net.hidden": 16,
}
TASKS = {
    "diabetes": {"learning-rate": 0.05},
    "poems": {"partition": "natural", "local-steps": 2},
    "shapes": {"local-steps": 2},
}
METHODS = {
    "cosage": {"strategy": "cosage"},
    "split-test": {"strategy": "split-test"},
    "ios-centred": {"strategy": "ios-centred"},
    "local-dp": {"privacy": "local-dp"},
    "central-dp": {"privacy": "central-dp"},
    "gradmatch": {"data-selector": "gradmatch"},
    "crust": {"data-selector": "crust"},
    "ode-balanced": {"strategy": "ode-balanced"},
    "sld": {"data-selector": "sld"},
    "titan": {"data-selector": "titan"},
    "scaffold and top-k": {"strategy": "scaffold", "uplink": "top-k"},
    "prox by oort": {"strategy": "fedprox", "client-selector": "oort"},
    "ifca": {"cohorts": "ifca", "cohort.number": 2},
}


SEVERAL_LABELS = (
    "cosage",
    "split-test",
    "ios-centred",
    "gradmatch",
    "ode-balanced",
    "scaffold and top-k",
)


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", TASKS)
def test_every_method_works_on_every_kind(task: str, method: str, tmp_path: Path) -> None:
    keys = {"task": task, **TASKS[task], **METHODS[method]}
    run = run_local({**SMALL, **keys, "output-dir": str(tmp_path)})
    assert run.reason == "completed"
    heard = events(run.folder)
    assert [e for e in heard if e["event"] == "quarantined" or e.get("failed")] == []
    metric = {"diabetes": "mae", "poems": "perplexity", "shapes": "mean-iou"}[task]
    assert np.isfinite([row[metric] for row in run.rounds]).all()
    models = load_file(run.folder / "model.safetensors")
    assert all(np.isfinite(array).all() for array in models.values())


@pytest.mark.parametrize("method", SEVERAL_LABELS)
def test_methods_work_on_several_labels_per_sample(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 3)) > 0).astype(int)
    data = {"x_train": x[:150], "y_train": y[:150], "x_test": x[150:], "y_test": y[150:]}
    np.savez(tmp_path / "labels.npz", **data)
    keys = {"task": "npz", "data.path": str(tmp_path / "labels.npz"), "data.kind": "multi-label"}
    more = {"num-server-rounds": 3, "metrics": "macro-f1,auc", "output-dir": str(tmp_path / "runs")}
    run = run_local({**SMALL, **keys, **METHODS[method], **more})
    heard = events(run.folder)
    assert [e for e in heard if e["event"] == "quarantined" or e.get("failed")] == []
    assert run.rounds[-1]["loss"] < run.rounds[0]["loss"]
    assert 0 <= run.rounds[-1]["auc"] <= 1


def test_the_recall_of_each_class(tmp_path: Path) -> None:
    few = {"num-clients": 3, "num-server-rounds": 2, "report": False, "output-dir": str(tmp_path)}
    run = run_local({**few, "metrics": "accuracy,class-recall", "task": "synthetic"})
    known = [run.rounds[-1].get(f"recall-{label}") for label in range(10)]
    assert all(value is None or 0 <= value <= 1 for value in known)
    assert any(known)
    with pytest.raises(TaskError, match="metrics: class-recall needs 2 to 100 classes"):
        run_local({**few, "metrics": "mae,class-recall", "task": "diabetes"})
    with pytest.raises(ConfigError, match=r"objective = 'scaffold': needs optimiser.name = 'sgd'"):
        run_local({**few, "strategy": "scaffold", "optimiser.name": "adam"})


def test_a_node_without_the_device_it_is_to_use_says_so_and_goes_on() -> None:
    run = {**default_config(), "task": "synthetic"}
    arrays = read_arrays(load_task(read_config(run).task_spec()).build_model())
    content = {"arrays": to_record(arrays), "config": ConfigRecord({"server-round": 1})}
    message = Message(RecordDict(content), dst_node_id=7, message_type="train")
    node = {"partition-id": 0, "num-partitions": 5, "device": "cuda:5"}
    reply = answer_one(message, Context(1, 7, node, RecordDict(), run))
    assert reply.has_content(), reply.error
    note = str(reply.content.config_records["client"]["note"])
    assert note == (
        "device = 'cuda:5': this machine has 0 CUDA devices; use auto or cpu; trained on the CPU"
    )


@pytest.mark.parametrize(
    ("task", "keys", "better"),
    [
        ("diabetes", {"learning-rate": 0.05, "num-server-rounds": 8}, lambda v: v < 0.55),
        ("poems", {"num-server-rounds": 6, "partition": "natural"}, lambda v: v < 15),
        ("shapes", {"num-server-rounds": 6}, lambda v: v > 0.5),
    ],
)
def test_they_learn(task: str, keys: dict[str, Any], better: Any, tmp_path: Path) -> None:
    adam = {} if task == "diabetes" else {"optimiser.name": "adam", "learning-rate": 0.01}
    few = {"num-clients": 5, "report": False, "output-dir": str(tmp_path)}
    run = run_local({**few, "task": task, **adam, **keys})
    metric = {"diabetes": "mae", "poems": "perplexity", "shapes": "mean-iou"}[task]
    assert better(run.rounds[-1][metric]), run.rounds[-1]


def test_what_a_task_lacks_is_said_before_anything_starts(tmp_path: Path) -> None:
    for keys, expected in (
        ({"client-selector": "cluster-oracle"}, "client-selector = 'cluster-oracle': works class"),
        ({"data-selector": "trusted"}, "works class by class, and task 'shapes' is segmentation"),
        ({"strategy": "moon"}, "objective = 'moon': the model's last layer is Conv2d"),
        ({"device": "cuda:7"}, "device = 'cuda:7': this machine has 0 CUDA devices"),
        ({"metrics": "mae,mea"}, "metrics = 'mea' is not known.*did you mean 'mae'"),
        ({"optimiser.name": "adams"}, "optimiser.name = 'adams' is not known.*'adam'"),
        ({"optimiser.name": "nowhere:made"}, "optimiser.name = 'nowhere:made' cannot be imported"),
    ):
        with pytest.raises(TaskError, match=expected):
            run_local({**SMALL, "task": "shapes", **keys, "output-dir": str(tmp_path)})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's programs and a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for language, text in BLOCKS:
        if language:
            name, program = text.removeprefix("# ").split("\n", 1)
            Path(name).write_text(program)
            monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    rng = np.random.default_rng(0)
    x, sites = rng.normal(size=(160, 3)), np.arange(160) % 8
    rows = [
        f"{a},{b},{c},{'high' if a + b > 0 else 'low'},s{s}"
        for (a, b, c), s in zip(x, sites, strict=True)
    ]
    Path("readings.csv").write_text("\n".join(["a,b,c,label,site", *rows]))
    return tmp_path


@pytest.mark.parametrize(
    "line", [line for language, text in BLOCKS if not language for line in text.splitlines()]
)
def test_the_pages_commands(line: str, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_rounds = re.sub(r"num-server-rounds=\d+", "num-server-rounds=2", line)
    program, *arguments = shlex.split(two_rounds)
    assert program == "forager"
    assert main(arguments) == 0
    assert "report" in capsys.readouterr().out
    (folder,) = (page / "runs").iterdir()
    assert all(event.get("failed", {}) == {} for event in events(folder))


def test_only_the_adapters_travel(page: Path) -> None:
    few = {"num-clients": 3, "num-server-rounds": 1, "report": False, "output-dir": "runs"}
    run = run_local({**few, "task": "adapted:Adapted"})
    (told,) = [e for e in events(run.folder) if e.get("kind") == "train"]
    trained = 4 * (4 * (2000 + 64) + 64 * 2 + 2)
    assert trained < told["bytes-up"] / told["received"] < trained + 2000
    whole = load_file(run.folder / "model.safetensors")
    assert sum(array.size for array in whole.values()) > 4_000_000
    assert whole["0.2.weight"].shape == (2000, 2000)


def broken(method: str, text: str) -> str:
    return (
        "import torch\nfrom forager.core.tasks import Regression\nclass T(Regression):\n"
        "    def data(self):\n"
        "        x = torch.ones(30, 2).numpy(); y = x.sum(1)\n"
        "        return dict(x_train=x, y_train=y, x_test=x, y_test=y)\n"
        f"    def {method}:\n        {text}\n"
    )


@pytest.mark.parametrize(
    ("method", "text", "expected"),
    [
        ("loss(self, o, t)", "return (o - t).square().mean()", "T.loss returned .* one loss per"),
        ("loss(self, o, t)", "return 1 / 0", "T.loss on outputs of shape .* failed: ZeroDivision"),
        ("model(self)", "return torch.nn.Linear(3, 1)", "the model, on a batch of shape .* failed"),
        ("model(self)", "return 3", r"T.model\(\) returned int"),
        ("model(self)", "raise OSError('no weights')", r"T.model\(\) failed: OSError: no weights"),
        (
            "model(self)",
            "return torch.nn.Linear(2, 1).requires_grad_(False)",
            "no trainable parameter",
        ),
        ("data(self)", "return None", "must return RawData or a dict"),
        ("client_data(self, a, b)", "return torch.ones(3, 2), torch.ones(3)", "server_data is mis"),
        ("__init__(self)", "raise ValueError('no file')", r"T\(\) failed: ValueError: no file"),
    ],
)
def test_faults_of_ones_own_task_are_named(
    method: str, text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"broken_{abs(hash((method, text)))}"
    (tmp_path / f"{module}.py").write_text(broken(method, text))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TaskError, match=expected):
        run_local({"task": f"{module}:T", "num-clients": 2, "output-dir": str(tmp_path / "runs")})
    assert not (tmp_path / "runs").exists()


def test_one_client_with_a_loss_that_is_not_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one_bad.py").write_text(
        "import torch\nfrom forager.core.tasks import Regression\nclass T(Regression):\n"
        "    def client_data(self, client, clients):\n"
        "        x = torch.ones(8, 2) * (float('nan') if client == 1 else 1.0)\n"
        "        return x, torch.ones(8)\n"
        "    def server_data(self):\n        return torch.ones(8, 2), torch.ones(8)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = {"task": "one_bad:T", "num-clients": 3, "fraction-train": 1.0, "num-server-rounds": 2}
    run = run_local({**keys, "report": False, "output-dir": str(tmp_path / "runs")})
    assert run.reason == "completed"
    assert {e["client"] for e in events(run.folder) if e["event"] == "quarantined"} == {"1"}
    assert torch.isfinite(torch.tensor(run.rounds[-1]["mae"]))


def test_clients_may_bring_test_data_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_tests.py").write_text(
        "import torch\nfrom forager.core.tasks import Regression\nclass T(Regression):\n"
        "    def client_data(self, client, clients):\n"
        "        return torch.ones(8, 2), torch.ones(8)\n"
        "    def client_test_data(self, client, clients):\n"
        "        return torch.ones(3 + client, 2), torch.ones(3 + client)\n"
        "    def device_data(self, path):\n"
        "        return torch.full((5, 2), float(path)), torch.ones(5)\n"
        "    def server_data(self):\n        return torch.ones(8, 2), torch.ones(8)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = load_task(TaskSpec(task="own_tests:T", client_test_share=0.4))
    data = task.client_data(1, 2)
    assert (len(data.train), len(data.test)) == (8, 4)
    device = task.device_data("7")
    assert (len(device.train), len(device.test), float(device.train.x[0, 0])) == (3, 2, 7.0)
