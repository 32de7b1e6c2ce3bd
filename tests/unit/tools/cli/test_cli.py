"""The command `forager`: help with examples, errors that name what to do, the same code behind."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forager.core.config import default_config, read_config
from forager.core.tasks import load_task
from forager.tools import checks, demos
from forager.tools.cli.app import app, main
from forager.tools.cli.options import REFUSED, read_overrides
from forager.tools.cli.run import OWN_DATA, judged_where_it_counts
from forager.tools.flower.env import PROJECT, app_folder, superlink_name
from forager.tools.predict import load_model
from forager.tools.predict import predict as predicted
from safetensors.numpy import load_file
from typer.testing import CliRunner

COMMANDS = [
    *("run", "resume", "diagnose", "compare", "watch", "report", "donors", "predict", "export"),
    *("demo", "methods", "keys", "init", "server", "node", "doctor"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mytask", raising=False)  # other tests write one too
    return tmp_path


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_what_people_type(command: str) -> None:
    said = plain(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output)
    examples = re.findall(rf"^ forager {command}.*$", said, re.MULTILINE)
    assert 1 <= len(examples) <= 3, said


def test_all_commands_are_listed_and_completion_is_offered() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    assert [c for c in COMMANDS if not re.search(rf"│ {c} ", said)] == []
    assert "--install-completion" in said


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["run", "-c", "strategy=cosage"], "put text in quotes: strategy='cosage'"),
        (["run", "-c", "strategy='cosag'"], "did you mean 'cosage'"),
        (["run", "-c", "seed=1 task='digits' seed=2"], "'seed' is set 2 times in one -c"),
        (
            ["run", "--local", "-c", "task='diabetes' strategy='gcfl'"],
            "data-selector can be full,",
        ),
        (["run", "--local", "-c", "model='nowhere:build'"], "No module named 'nowhere'"),
        (["run", "-c", "model='nowhere:build'"], "No module named 'nowhere'"),
        (["resume"], "holds no run yet"),
        (["report", "nothing"], "'nothing' is not the folder of a run"),
        (["watch", "nothing"], "'nothing' is not the folder of a run"),
        (["predict", "latest", "no.npz"], "no.npz: there is no such file"),
        (["demo", "fedavg"], "unknown demo 'fedavg'"),
        (["methods", "ort"], "did you mean 'oort'"),
        (["keys", "lerning-rate"], "did you mean 'learning-rate'"),
        (["init", "my_task"], "lower-case letters, digits and hyphens"),
        (["init", "asyncio"], "a module of this name exists already"),
        (["compare", "fedavgg"], "fedavgg"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_in_words(
    arguments: list[str], answer: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert answer in said
    assert "Traceback" not in said


def test_what_flower_would_find_late_is_found_early(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "runs" / "mine").mkdir(parents=True)
    assert main(["run", "-c", "run-name='mine'"]) == 2
    assert "exists already. Choose another name" in capsys.readouterr().err
    (place / "mytask.py").write_text("def load(): ...")
    assert main(["run", "-c", "task='mytask:load'"]) == 2
    said = capsys.readouterr().err
    assert "is not sent to clients with the app" in said
    assert "--local" in said


def test_keys_and_methods_say_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "cosage"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("cosage.silent-ratio = 0.0")
    assert "share of clients that rest" in said
    assert main(["keys", "devices."]) == 0
    assert len(capsys.readouterr().out.split("devices.")) == 6
    assert main(["keys", "cosage.", "top-k.", "cosage."]) == 0
    said = capsys.readouterr().out
    assert said.count("cosage.silent-ratio =") == said.count("top-k.density =") == 1
    assert main(["methods"]) == 0
    said = capsys.readouterr().out
    assert "client-selector: which clients train" in said
    assert "cosage" in said


@pytest.mark.parametrize("method", ["cosage", "gcfl", "ode", "auxo", "ios"])
def test_a_demo_is_a_config_that_runs(method: str) -> None:
    from forager.core.config import default_config, read_config
    from forager.core.config.overrides import parse_overrides

    shown = demos.DEMOS[method]
    both = [
        read_config({**default_config(), **parse_overrides([shown.config, keys])})
        for keys in (shown.method, shown.without)
    ]
    assert both[0].strategy == method
    differ = {key for key, value in both[0].flat().items() if value != both[1].flat()[key]}
    assert differ  # what is compared is the method


@pytest.mark.parametrize(("method", "lead"), [("auxo", 30), ("ios", 2)])
def test_a_demo_shows_that_its_method_works(
    method: str, lead: float, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", method, "--out", str(place)]) == 0
    said = capsys.readouterr().out
    without, reached = (float(n) for n in re.findall(r"([0-9.]+) % at the end", said))
    assert reached > without + lead
    assert f"{demos.DEMOS[method].baseline} (baseline)" in said
    reports = {path.parent.name: path for path in place.glob(f"demo-{method}*/report.html")}
    assert len(reports) == 2
    page = next(path for name, path in reports.items() if "without" not in name).read_text()
    if method == "ios":  # promises two blocks
        assert "2 planted groups; the cohorts agree with them to 1.00" in page


def test_a_demo_says_what_its_method_costs(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(demos.DEMOS["cosage"], config="num-clients=8 num-server-rounds=4 report=false")
    monkeypatch.setitem(demos.DEMOS, "cosage", short)
    assert main(["demo", "cosage", "--out", str(place)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"cosage sends [0-9.]+ times as many bytes as its baseline", said)
    assert len({each.about for each in demos.DEMOS.values()}) == len(demos.DEMOS)


def test_the_doctor_survives_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def _broken() -> checks.CheckResult:
        raise RuntimeError("no luck")

    quick = (checks._machine, checks._disk, checks._data, checks._ports)
    monkeypatch.setattr(checks, "_CHECKS", quick)
    assert main(["doctor"]) == 0
    monkeypatch.setattr(checks, "_CHECKS", (*quick, _broken))
    assert main(["doctor"]) == 1
    assert "RuntimeError: no luck" in capsys.readouterr().out


def test_the_app_is_found_from_anywhere(place: Path) -> None:
    assert app_folder() == PROJECT
    (place / "pyproject.toml").write_text('[tool.flwr.app.components]\nserverapp = "other:app"\n')
    assert app_folder() == PROJECT
    (place / "pyproject.toml").write_text('[tool.flwr.app.config]\ntask = ""\nstrategy = ""\n')
    assert app_folder() == place


def test_a_pipe_that_closes_early_is_no_fault(tmp_path: Path) -> None:
    command = f"{sys.executable} -m forager.tools.cli keys | head -n 1"
    done = subprocess.run(
        command, shell=True, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("strategy = 'fedavg'")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("keys", "held_out"),
    [
        ("strategy='ios-centred'", True),
        ("strategy='split-test'", True),
        ("strategy='fedavg'", False),
        ("strategy='split-test' privacy='local-dp'", False),
        ("strategy='ios-centred' fraction-evaluate=0.0", False),
    ],
)
def test_models_of_groups_are_judged_on_their_own_data(
    keys: str, held_out: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = read_overrides([keys])
    settled = judged_where_it_counts(asked)
    assert settled == ({**asked, **OWN_DATA} if held_out else asked)
    assert ("hold out a fifth" in capsys.readouterr().out) == held_out


def test_images_are_predicted_in_the_form_in_which_clients_hold_them(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = rng.integers(0, 100, (120, 6, 6)).astype(np.uint8)
    x[y == 0, :, :3] += 150  # bright on the left
    x[y == 1, :, 3:] += 150
    np.savez("images.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    keys = "task='npz' data.path='images.npz' partition='iid' num-clients=2 num-server-rounds=5"
    where = "clients-per-round=2 run-name='images' report=false"
    assert main(["run", "--local", "-c", f"{keys} {where}"]) == 0
    capsys.readouterr()
    assert main(["predict", "images", "images.npz"]) == 0
    assert "accuracy: 100.0 %" in capsys.readouterr().out
    np.savez("float.npz", x=x[80:] / 255.0)
    assert main(["predict", "images", "float.npz"]) == 2
    assert "it reads (1, 6, 6), the channel first: x[:, None]" in capsys.readouterr().err


def test_a_run_in_this_process_that_was_stopped_says_how_to_go_on(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "stopping.py").write_text(
        "import os, signal, forager\n\n\n"
        "class Stop(forager.Callback):\n"
        "    def __init__(self, folder):\n        pass\n\n"
        "    def on_round_end(self, loop):\n"
        "        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does\n"
    )
    keys = "callbacks='stopping:Stop' num-clients=2 run-name='cut' report=false"
    assert main(["run", "--local", "-c", keys]) == 130
    assert re.search(r"To continue: .*resume runs/cut --local", capsys.readouterr().out)


def test_a_run_on_devices_is_never_continued_by_a_simulation(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "num-clients=3 num-server-rounds=1 report=false run-name='one'"
    assert main(["run", "--local", "-c", settings]) == 0
    file = place / "runs/one/config.json"
    config = json.loads(file.read_text())
    assert config["runs-on"] == "local engine"
    monkeypatch.setattr("forager.tools.flower.run.launch", lambda *_: pytest.fail("simulated"))
    assert main(["resume", "one", "-c", "num-server-rounds=2"]) == 0  # where it was
    file.write_text(json.dumps({**config, "runs-on": "devices"}))
    capsys.readouterr()
    for option in ([], ["--local"]):
        assert main(["resume", "one", "-c", "num-server-rounds=3", *option]) == REFUSED
        said = capsys.readouterr().err
        assert "flwr run . SUPERLINK --stream -c" in said
        assert "num-server-rounds=3 " in said
        assert f"resume-from='{place}/runs/one'" in said
    assert main(["run", "--local", "-c", f"{settings} resume-from='runs/one'"]) == REFUSED
    assert "that run was on devices, this one is on local engine" in capsys.readouterr().err


def test_a_new_run_begins_with_the_best_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = "num-clients=3 num-server-rounds=2 report=false learning-rate=3.0"
    assert main(["run", "--local", "-c", f"{settings} run-name='one' model='softmax'"]) == 0
    begin = ["resume", "one", "--best", "-c"]
    assert main([*begin, "num-server-rounds=0 run-name='two' learning-rate=0.1"]) == 0
    best, model = (
        place / "runs" / name for name in ("one/best.safetensors", "two/model.safetensors")
    )
    assert load_file(best).keys() == load_file(model).keys()
    for name, array in load_file(best).items():
        assert np.array_equal(array, load_file(model)[name])
    assert main(["resume", "two", "-c", "num-server-rounds=1"]) == 0  # as any other run
    capsys.readouterr()
    assert main([*begin, "model='mlp'"]) == REFUSED
    assert "one/best.safetensors': its model has other arrays" in capsys.readouterr().err
    (best.parent / "best-0.1.safetensors").write_bytes(best.read_bytes())
    assert main(["resume", "one", "--best"]) == REFUSED
    assert "have models of their own (best-0.1.safetensors)" in capsys.readouterr().err
    best.unlink()
    assert main(["resume", "one", "--best"]) == REFUSED
    assert "one/best.safetensors does not exist" in capsys.readouterr().err
    assert len(list((place / "runs").iterdir())) == 2


def test_the_one_superlink_that_is_known_is_named(tmp_path: Path) -> None:
    config = '[superlink.local]\noptions.num-supernodes = 2\n[superlink.mine]\naddress = "a:1"\n'
    (tmp_path / "config.toml").write_text(config)
    assert superlink_name(tmp_path) == "mine"


@pytest.mark.parametrize(
    ("task", "metric", "column"),
    [("diabetes", "MAE", "predictions"), ("poems", "perplexity", "classes")],
)
def test_numbers_and_texts_are_predicted_and_judged_by_their_own_metrics(
    task: str, metric: str, column: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "strategy='fedavg' num-clients=3 num-server-rounds=1 report=false run-name='one'"
    assert main(["run", "--local", "-c", f"task='{task}' {keys}"]) == 0
    test = load_task(read_config({**default_config(), "task": task}).task_spec()).server_data().test
    np.savez("new.npz", x=test.x.numpy(), y=test.y.numpy())
    told = capsys.readouterr().out
    assert main(["predict", "one", "new.npz", "--out", "answers.npz"]) == 0
    said = capsys.readouterr().out
    assert "tune this model" not in said
    reached = re.search(rf"^{metric}: (\S+)", said, re.MULTILINE)
    assert reached
    assert re.search(rf"final {metric} +{re.escape(reached[1])} ", told)
    with np.load("answers.npz") as answers:
        assert len(answers[column]) == len(test)
        model = load_model("runs/one", tuple(test.x.shape[1:]))
        assert np.allclose(predicted(model, test.x.numpy())[0], answers[column])


@pytest.mark.parametrize(
    ("command", "words"),
    [("node", "HOST:PORT of the server's SuperLink"), ("report", "the newest in runs/ by default")],
)
def test_help_says_what_arguments_are(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    assert words in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_predict_says_which_file_it_needs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.csv").write_text("a,b\n1,2\n")
    np.save("plain.npy", np.zeros((2, 2)))
    np.savez("named.npz", inputs=np.zeros((2, 2)))
    remedy = "write the inputs with numpy.savez('new.npz', x=inputs)"
    for file, fault in (
        ("table.csv", "not an .npz file"),
        ("plain.npy", "not an .npz file"),
        ("named.npz", "holds inputs"),
    ):
        assert main(["predict", "latest", file]) == REFUSED
        assert f"{file}: {fault}; {remedy}" in capsys.readouterr().err
    both = ["--client", "clinic-05", "--cohort", "0.1"]
    assert main(["predict", "latest", "named.npz", *both]) == REFUSED
    assert "give only one of the two" in capsys.readouterr().err


def test_a_client_is_predicted_for_by_the_model_of_its_cohort(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "strategy='split-test' num-clients=6 num-server-rounds=2 report=false run-name='one'"
    assert main(["run", "--local", "-c", f"{keys} personalise.epochs=1"]) == 0
    folder = place / "runs/one"
    homes = {"members": {"0.0": 1, "0.1": 1}, "moved": {"5": "0.1"}}
    with (folder / "events.jsonl").open("a") as log:
        for line in (
            {"event": "identified", "client": "5", "name": "clinic-05"},
            {"event": "cohorts", "round": 2, **homes},
        ):
            log.write(json.dumps(line) + "\n")
    model = (folder / "model.safetensors").read_bytes()
    for cohort in ("0.0", "0.1"):
        (folder / f"model-{cohort}.safetensors").write_bytes(model)
    np.savez("new.npz", x=np.zeros((2, 1, 8, 8), np.float32))
    capsys.readouterr()
    assert main(["predict", "one", "new.npz", "--client", "clinic-05"]) == 0
    said = capsys.readouterr().out
    assert "client clinic-05: model of cohort 0.1" in said
    assert "Clients tune this model on their own data before use" in said
    assert main(["predict", "one", "new.npz"]) == 0
    assert "cohorts 0.0, 0.1 have their own" in capsys.readouterr().out
    assert main(["predict", "one", "new.npz", "--client", "nobody"]) == REFUSED
    assert "has no client 'nobody'" in capsys.readouterr().err


def test_a_text_model_with_its_classes_last_is_predicted_along_the_right_axis(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "letters.py").write_text(LETTERS)
    keys = "strategy='fedavg' num-clients=2 num-server-rounds=1 report=false run-name='one'"
    assert main(["run", "--local", "-c", f"task='letters:Letters' {keys}"]) == 0
    x = np.arange(15).reshape(3, 5) % 5
    np.savez("new.npz", x=x, y=(x + 1) % 5)
    assert main(["predict", "one", "new.npz", "--trust", "--out", "answers.npz"]) == 0
    assert "accuracy: 100.0 %" in capsys.readouterr().out
    with np.load("answers.npz") as answers:
        np.testing.assert_array_equal(answers["classes"], (x + 1) % 5)
        assert answers["probabilities"].argmax(axis=1).tolist() == ((x + 1) % 5).tolist()


LETTERS = """
import numpy as np
import torch
from forager import NextToken
from torch import nn


class Next(nn.Module):
    classes_last = True  # both axes are 5 long

    def __init__(self):
        super().__init__()
        self.scores = nn.Parameter(10 * torch.eye(5).roll(1, 1))

    def forward(self, x):
        return self.scores[x]


class Letters(NextToken):
    def client_data(self, client, clients):
        x = np.tile(np.arange(5), (8, 1))
        return x, (x + 1) % 5

    def server_data(self):
        return self.client_data(0, 1)

    def model(self):
        return Next()
"""
