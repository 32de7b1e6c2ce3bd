"""`forager node` and `forager server`: what they refuse, what they make, what they run."""

import os
import signal
import stat
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest
from flwr.supercore.constant import PULL_INITIAL_BACKOFF
from forager.core.config import ConfigError
from forager.docker.credentials import authority
from forager.tools.cli.app import main
from forager.tools.flower import node as nodes
from forager.tools.flower.env import PROJECT
from forager.tools.flower.node import Device, keep_running
from forager.tools.flower.server import Server

SERVER = "fl.example.org:9092"


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    (tmp_path / "authority").mkdir()
    authority(tmp_path / "authority")
    return tmp_path / "authority" / "ca.crt"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"server": "fl.example.org"}, "SERVER = 'fl.example.org' is not HOST:PORT"),
        ({"name": "a b"}, "letters, digits"),
        ({"partition": ""}, "give its samples by --data"),
        ({"data": Path("/nowhere/train.npz")}, "or a part of the task's data"),
        ({"data": Path("/nowhere/train.npz"), "partition": ""}, "there is no such file"),
        ({"partition": "3/2"}, "--partition '3/2': expected PART/PARTS, such as 2/3"),
        ({"insecure": False}, "--ca is needed at the first start"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_work_is_refused(
    changes: dict[str, object], answer: str, tmp_path: Path
) -> None:
    given = {"server": SERVER, "name": "one", "partition": "1/3", "insecure": True, **changes}
    with pytest.raises(ConfigError, match=answer):
        Device(state=tmp_path / "state", **given).prepare()  # type: ignore[arg-type]
    assert not (tmp_path / "state").exists()


def test_the_first_start_makes_a_key_and_the_second_keeps_it(
    tmp_path: Path, ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = Device(SERVER, "camera-7", tmp_path / "state", partition="1/3")
    device.prepare(ca)
    said = capsys.readouterr().err
    assert "flwr supernode register camera-7.pub forager --name camera-7" in said
    key, public = device.state / "key", device.state / "camera-7.pub"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
    assert (device.state / "ca.crt").read_bytes() == ca.read_bytes()
    before = key.read_bytes()
    device.prepare()
    assert key.read_bytes() == before
    assert capsys.readouterr().err == ""


def test_the_unit_runs_the_same_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--name", "one", "--partition", "1/3", "--insecure", "--tags", "gpu,site-a"]
    assert main(["node", SERVER, *options, "--state-dir", str(tmp_path), "--unit"]) == 0
    unit = capsys.readouterr().out
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert f"forager.tools.cli node {SERVER} --name=one --state-dir={tmp_path}" in command
    assert command.endswith("--partition=1/3 --tags=gpu,site-a --port=9094 --insecure")
    assert f"ReadWritePaths={tmp_path}\n" in unit


def test_a_node_that_ends_is_started_again_until_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "starts = pathlib.Path('starts')\n"
        "starts.open('a').write(f'{sys.argv[1]} {os.environ[\"NAME\"]}\\n')\n"
        "if len(starts.read_text().splitlines()) == 3:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
        "    signal.pause()\n"
        "sys.exit(1)\n"
    )
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "supernode.py").write_text(program)
    monkeypatch.setattr(nodes, "PROJECT", tmp_path)
    monkeypatch.setattr(nodes, "_PAUSE", 0.01)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert keep_running(Device(SERVER, "one", tmp_path, partition="1/3", port=1234)) == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert (tmp_path / "starts").read_text() == "--port=1234 one\n" * 3


@pytest.fixture(name="lean")
def _lean() -> ModuleType:
    """The lean SuperNode as a module."""
    path = PROJECT / "docker" / "lean" / "flower-supernode"
    assert os.access(path, os.X_OK)
    loader = SourceFileLoader("lean_supernode", str(path))
    spec = spec_from_loader("lean_supernode", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_lean_supernode_naps_shortly_while_messages_come(
    lean: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    now = [0.0]
    monkeypatch.setattr(lean.time, "sleep", slept.append)
    monkeypatch.setattr(lean.time, "monotonic", lambda: now[0])
    nap = lean.Naps()
    for at, seconds in ((10.0, 3.0), (90.0, 3.0), (91.0, 0.5), (92.0, 3.0), (200.0, 3.0)):
        now[0] = at
        nap(seconds)
    assert slept == [0.15, 3.0, 0.15, 0.15, 3.0]


def test_the_lean_supernode_soon_looks_again_for_content_on_its_way(lean: ModuleType) -> None:
    flowers = ModuleType("flowers")
    flowers.pull_objects = lambda names, **how: (names, how)  # type: ignore[attr-defined]
    lean.look_more_often(flowers)
    names, how = flowers.pull_objects(["a"])
    assert (names, set(how)) == (["a"], {"initial_backoff"})
    assert how["initial_backoff"] < PULL_INITIAL_BACKOFF / 10
    assert how.keys() <= signature(lean.start_client_internal.pull_objects).parameters.keys()
    lean.look_more_often(ModuleType("of another version"))


def test_a_server_lets_in_registered_devices_and_commands_from_here_only(tmp_path: Path) -> None:
    command = Server(("fl.example.org",), 9092, 8000, tmp_path).command(tmp_path)
    assert {"--host=127.0.0.1", "--enable-supernode-auth"} <= set(command)
    assert f"--ssl-keyfile={tmp_path}/server.key" in command
    assert "--insecure" not in command
    alone = Server((), 9092, 8000, tmp_path, insecure=True).command(tmp_path)
    assert not [word for word in alone if "0.0.0.0" in word]
    with pytest.raises(ConfigError, match="--name is needed"):
        Server((), 9092, 8000, tmp_path / "state").run()
    assert not (tmp_path / "state").exists()


def test_it_becomes_the_superlink_so_that_signals_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[tuple[Path, list[str], dict[str, str]]] = []
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))
    options = ["--name", "fl.example.org", "--state-dir", str(tmp_path / "state")]
    assert main(["server", *options]) == 0
    ((program, command, _),) = called
    assert program.name == "flower-superlink"
    assert {"ca.crt", "server.crt", "server.key"} <= set(os.listdir(tmp_path / "state"))
    assert " ".join(command) in capsys.readouterr().out


def test_flower_learns_of_the_server_but_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    file = tmp_path / "home" / "config.toml"
    Server(("a",), 9092, 8000, tmp_path).make_known(tmp_path)
    table = tomllib.loads(file.read_text())["superlink"]["forager"]
    assert table == {"address": "127.0.0.1:8000", "root-certificates": f"{tmp_path}/ca.crt"}
    before = file.read_text()
    Server((), 9092, 8001, tmp_path, insecure=True).make_known(tmp_path)
    assert file.read_text() == before
    assert "has another [superlink.forager]" in capsys.readouterr().out
