"""The files of docker/ keep their promises. Nothing here needs Docker; `make test-docker` does."""

import configparser
import importlib
import socket
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from forager.server_app.run_folder import RunFolder
from forager.tools.flower.env import PROJECT

DOCKER = PROJECT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yml").read_text())
SERVICES = COMPOSE["services"]
NAMES = ["superlink", "127.0.0.1", "fl.example.org"]
LASTING = [name for name, service in SERVICES.items() if "restart" in service]


@pytest.fixture(scope="module", autouse=True)
def tools():
    """The programs that run inside containers, importable as they are there."""
    sys.path.insert(0, str(DOCKER))
    yield importlib.import_module
    sys.path.remove(str(DOCKER))


def generate(count):
    command = ["bash", str(DOCKER / "forager.sh"), "generate", str(count)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return yaml.safe_load(text)


def mounts(service):
    """What a service mounts: target -> (source, mode)."""
    entries = [entry.rsplit(":", 2) for entry in service.get("volumes", [])]
    entries = [
        entry if entry[-1] == "ro" else [":".join(entry[:-1]), entry[-1], "rw"] for entry in entries
    ]
    return {target: (source, mode) for source, target, mode in entries}


# --- compose.yml


def test_every_service_is_confined():
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True, name
        assert service["mem_limit"], name
        assert service["cpus"], name
        assert service["pids_limit"] == 256, name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert service["tmpfs"][0].startswith("/tmp:size="), name
        assert not {"privileged", "user", "cap_add", "devices"} & service.keys(), name
        assert service.get("network_mode", "none") == "none", name


def test_the_image_is_of_this_version():
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    images = {service["image"] for service in SERVICES.values()}
    assert images == {f"${{FORAGER_IMAGE:-forager:{version}}}"}
    assert [name for name, service in SERVICES.items() if "build" in service] == ["credentials"]


def test_what_lasts_restarts_and_is_watched():
    assert set(LASTING) == {"superlink", "serverapp", "node-1", "node-2", "node-3", "device"}
    for name in LASTING:
        assert SERVICES[name]["restart"] == "unless-stopped", name
        assert "/app/docker/health.py" in SERVICES[name]["healthcheck"]["test"], name


def test_the_superlink_demands_tls_and_keys_and_outlives_its_restart():
    command = SERVICES["superlink"]["command"]
    for option in (
        "--enable-supernode-auth",
        "--isolation=process",
        "--database=/superlink/state.db",
    ):
        assert option in command
    assert "--insecure" not in str(COMPOSE)
    # The interface without a password: only in a network that no device is in.
    assert "--host=control" in command
    assert SERVICES["superlink"]["networks"]["control"] == {"aliases": ["control"]}
    assert SERVICES["superlink"]["ports"] == ["${FLEET_ADDRESS:-127.0.0.1}:${FLEET_PORT-9092}:9092"]
    assert all(SERVICES[name]["networks"] == ["fleet"] for name in LASTING if name[0] in "nd")


def test_secrets_are_seen_by_their_owners_only():
    owners = {}
    for name, service in SERVICES.items():
        for source, mode in mounts(service).values():
            if "credentials" in source or source == "authority":
                owners.setdefault(source, set()).add((name, mode))
    assert owners.pop("authority") == {("credentials", "rw")}
    for role in ("superlink", "serverapp"):
        assert owners.pop(f"{role}-credentials") == {("credentials", "rw"), (role, "ro")}
    for source, seen in owners.items():
        node = source.removesuffix("-credentials")
        assert seen == {(node, "ro"), (f"{node}-key", "rw")}


def test_nodes_keep_their_state_and_cannot_write_their_data():
    for name in ("node-1", "node-2", "node-3", "device"):
        found = mounts(SERVICES[name])
        assert found["/state"] == (f"{name}-state", "rw")
        assert found["/data"][1] == "ro"
        assert found["/data"][0].endswith(f":-{name}-data}}")
    assert mounts(SERVICES["serverapp"])["/results"] == ("results", "rw")


def test_nodes_do_not_wait_a_quarter_of_an_hour_for_a_dead_connection():
    for name in ("node-1", "node-2", "node-3", "device"):
        assert SERVICES[name]["sysctls"] == {"net.ipv4.tcp_retries2": "8"}


def test_three_nodes_generated_are_the_three_of_the_file():
    assert generate(3) == COMPOSE


def test_any_number_of_nodes():
    compose = generate(12)
    nodes = [compose["services"][f"node-{i}"] for i in range(1, 13)]
    assert "node-13" not in compose["services"]
    partitions = [node["environment"]["PARTITION"] for node in nodes]
    assert partitions == [f"{i}/12" for i in range(1, 13)]
    assert len({source for node in nodes for source, _ in mounts(node).values()}) == 36
    assert {f"node-{i}-key" for i in range(1, 13)} < compose["services"]["fleet"][
        "depends_on"
    ].keys()
    assert {f"node-{i}-state" for i in range(1, 13)} < compose["volumes"].keys()
    assert list(generate(1)["services"]["fleet"]["depends_on"]) == ["superlink", "node-1-key"]


# --- The other files


def test_the_image_runs_as_nobody_special_and_has_no_moving_base():
    text = (DOCKER / "Dockerfile").read_text()
    instructions = [line.split() for line in text.splitlines() if line and line[0].isupper()]
    assert ["USER", "forager"] in instructions
    assert ["ARG", "BASE_IMAGE=debian:bookworm-slim"] in instructions
    assert {base for kind, base, *_ in instructions if kind == "FROM"} == {"${BASE_IMAGE}"}
    assert "latest" not in text
    assert "--mount" not in text  # needs BuildKit, which 1.29 lacks
    assert "syntax=" not in text
    assert "amd64" not in text
    assert "x86" not in text


def test_a_device_without_docker_is_confined_too():
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    unit.optionxform = str
    unit.read(PROJECT / "tools" / "flower" / "forager-node.service")
    service = unit["Service"]
    assert service["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert {"MemoryMax", "TasksMax", "ProtectSystem", "ReadWritePaths"} <= service.keys()


def in_the_image(path: str) -> bool:
    """Return whether .dockerignore lets a file through: the last line that fits it decides."""
    included = True
    for line in (PROJECT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        anywhere = line.startswith("**/")
        if any(
            Path(name).match(pattern) and (anywhere or name.count("/") == pattern.count("/"))
            for name in above
        ):
            included = line.startswith("!")
    return included


def test_the_image_holds_what_runs_and_nothing_else_from_the_project_folder():
    needed = ["forager", "core", "tools", "server_app", "client_app", "strategies", "selectors"]
    assert all((PROJECT / folder).is_dir() for folder in needed)
    assert all(in_the_image(f"{folder}/deep/module.py") for folder in needed)
    names = (
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "docker/submit.py",
        "docker/lean/flwr-clientapp",
    )
    assert all(map(in_the_image, names))
    others = (
        "patients.csv",
        "train.npz",
        "my_secrets.py",
        "notes.md",
        "data/x.npz",
        ".env",
        ".git/config",
    )
    others += (
        "docker/.env",
        "docker/Dockerfile",
        "runs/one/config.json",
        "tests/x.py",
        "core/__pycache__/x.pyc",
    )
    assert [name for name in others if in_the_image(name)] == []
    listed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert all(
        in_the_image(pattern.strip("/").replace("*", "x")) for pattern in listed["fab-include"]
    )
    assert "COPY . /app" in (DOCKER / "Dockerfile").read_text()


# --- credentials.py


@pytest.fixture
def issued(tmp_path, tools):
    """A function that makes the server's credentials; the folder of each role."""
    roles = {name: tmp_path / name for name in ("authority", "public", "superlink", "serverapp")}
    for folder in roles.values():
        folder.mkdir()

    def issue(names):
        options = [f"--{name}={folder}" for name, folder in roles.items()]
        tools("credentials").main(["server", f"--names={names}", *options])
        return x509.load_pem_x509_certificate((roles["superlink"] / "server.crt").read_bytes())

    return issue, roles


def test_credentials_are_made_once_and_renewed_when_they_must_be(issued, tools, monkeypatch):
    issue, roles = issued
    first = issue("superlink,127.0.0.1,")
    authority = x509.load_pem_x509_certificate((roles["public"] / "ca.crt").read_bytes())
    first.verify_directly_issued_by(authority)
    files = [path for folder in roles.values() for path in folder.iterdir()]
    before = {path: path.read_bytes() for path in files}
    assert issue("superlink,127.0.0.1") == first
    assert {path: path.read_bytes() for path in files} == before

    renamed = issue(",".join(NAMES))
    names = renamed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink", "fl.example.org"]
    renamed.verify_directly_issued_by(authority)  # devices need nothing new

    credentials = tools("credentials")
    assert credentials.still_good(roles["superlink"] / "server.crt", NAMES, authority)
    monkeypatch.setattr(credentials, "RENEW_DAYS", credentials.SERVER_DAYS + 1)
    assert not credentials.still_good(roles["superlink"] / "server.crt", NAMES, authority)
    assert issue(",".join(NAMES)) != renamed


def test_private_files_are_private(issued):
    issue, roles = issued
    issue("superlink")
    private = ("ca.key", "server.key", "superexec.secret")
    modes = {
        path.name: path.stat().st_mode & 0o777
        for folder in roles.values()
        for path in folder.iterdir()
    }
    assert {modes[name] for name in private} == {0o600}
    assert not (roles["serverapp"] / "server.key").exists()
    assert {path.name for path in roles["public"].iterdir()} == {"ca.crt"}


def test_a_device_keeps_its_key(issued, tmp_path, tools, capsys):
    issue, roles = issued
    issue("superlink")
    capsys.readouterr()
    folder = tmp_path / "device"
    folder.mkdir()
    authority = roles["public"] / "ca.crt"
    options = ["device", "camera-7", f"--folder={folder}", f"--ca={authority}"]
    tools("credentials").main([*options, f"--publish={roles['public']}"])
    printed = capsys.readouterr().out
    tools("credentials").main(options)
    assert capsys.readouterr().out == printed == (roles["public"] / "camera-7.pub").read_text()
    public = serialization.load_ssh_public_key(printed.encode())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp384r1"  # Flower takes NIST's curves only
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(SystemExit, match=r"ca\.crt"):
        tools("credentials").main(["device", "x", f"--folder={tmp_path}", f"--ca={empty}"])


# --- health.py, supernode.py


def test_health_asks_the_server_itself(tools, monkeypatch):
    health = tools("health")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert health.main([f"grpc:{port}", f"open:127.0.0.1:{port}"]) == 0
    server.stop(None).wait()
    assert health.main([f"grpc:{port}"]) == 1
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # listens, never answers
        port = frozen.getsockname()[1]
        assert health.main([f"open:127.0.0.1:{port}"]) == 0
        monkeypatch.setattr(health, "_SECONDS", 0.2)
        assert health.main([f"grpc:{port}"]) == 1


def test_a_node_without_a_connection_to_its_server_is_not_healthy(tools, monkeypatch):
    health = tools("health")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("SERVER", f"fl.example.org:{port}")
        assert health.main(["server"]) == 1
        with socket.create_connection(("127.0.0.1", port)):
            assert health.main(["server"]) == 0


def test_own_data_go_before_a_trial_partition(tools, tmp_path):
    supernode = tools("supernode")
    data = tmp_path / "train.npz"
    assert "partition-id=1 num-partitions=3" in supernode.node_config("a", data, "2/3")
    with pytest.raises(FileNotFoundError, match="DEVICE_DATA"):
        supernode.node_config("a", data, "")
    data.write_bytes(b"")
    config = supernode.node_config("a", data, "2/3")
    assert config == f"client-id='a' state-dir='/state' data-path='{data}'"


def test_a_device_has_tags(tools, tmp_path):
    supernode = tools("supernode")
    env = {"NAME": "a", "SERVER": "s:1", "DATA": str(tmp_path), "TAGS": "gpu,site-a"}
    assert any(" tags='gpu,site-a' " in argument for argument in supernode.command(env))
    with pytest.raises(ValueError, match=r"TAGS = .*separated by commas"):
        supernode.command({**env, "TAGS": "gpu' state-dir='/etc"})


def test_a_device_that_lacks_something_says_what(tools, tmp_path):
    found = tools("supernode").problems(tmp_path / "train.npz", tmp_path, tmp_path)
    assert [Path(text.split()[0]).name for text in found] == ["ca.crt", "key"]
    assert all("device-key" in text for text in found)


# --- fleet.py, submit.py


class FakeFlower:
    """Flower's register of nodes, as it behaves."""

    def __init__(self):
        self.keys, self.state = {}, {}

    def nodes(self):
        return dict(self.state)

    def register(self, public_key, name):
        key = public_key.read_text()
        assert key not in self.keys, "Public key already in use."
        self.keys[key] = node = str(len(self.keys) + 1)
        self.state[node] = "registered"
        return node

    def unregister(self, node_id):
        self.state[node_id] = "unregistered"


def test_a_device_is_enrolled_once_revoked_for_good_and_replaced(tools, tmp_path):
    flower = FakeFlower()

    def fleet():
        return tools("fleet").Fleet(flower, tmp_path)

    assert fleet().add("camera", "ecdsa AAA camera") == "camera: enrolled as node 1"
    assert fleet().add("camera", "ecdsa AAA other comment") == "camera: is enrolled"
    assert "revoke" in fleet().add("camera", "ecdsa BBB camera")
    assert fleet().revoke("camera").startswith("camera: revoked")
    assert "new one" in fleet().add("camera", "ecdsa AAA camera")
    assert fleet().add("camera", "ecdsa BBB camera") == "camera: enrolled as node 2"
    assert flower.state == {"1": "unregistered", "2": "registered"}
    assert fleet().revoke("nobody") == "nobody: is not enrolled"
    with pytest.raises(SystemExit, match="letters"):
        fleet().add("../x", "ecdsa CCC")


def past_run(folder, *, checkpoint, finished, overrides=()):
    run = RunFolder.create(folder.parent, folder.name)
    run.write_config({"seed": 1, "overrides": dict(overrides)})
    run.append_event({"event": "run-started", "time": 0.0})
    if checkpoint:
        (run.checkpoints / "round-000002.safetensors").write_bytes(b"")
    if finished:
        run.append_event({"event": "run-finished", "time": 1.0, "reason": "completed"})


def test_resume_takes_the_last_run_that_died(tools, tmp_path):
    submit = tools("submit")
    settings = {"num-server-rounds": 9, "output-dir": "/results"}
    past_run(tmp_path / "dead", checkpoint=True, finished=False, overrides=settings)
    past_run(tmp_path / "too-early", checkpoint=False, finished=False)
    past_run(tmp_path / "done", checkpoint=True, finished=True)
    expected = {**settings, "resume-from": str(tmp_path / "dead")}
    assert submit.resumed_run("", tmp_path) == expected == submit.resumed_run("dead", tmp_path)
    for name in ("done", "too-early", "unknown"):
        with pytest.raises(ValueError, match="cannot be resumed"):
            submit.resumed_run(name, tmp_path)


def test_the_log_goes_on_where_it_broke_off(tools, monkeypatch):
    submit = tools("submit")
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)

    class Restarting:
        """A SuperLink that goes away once in mid-log."""

        calls = 0

        def log(self, run_id):
            self.calls += 1
            yield from ["one", "two", "three"][: 1 + self.calls]

        def status(self, run_id):
            return submit.RunStatus("finished:completed" if self.calls == 2 else "running", "")

    assert list(submit.lasting_log(Restarting(), "1")) == ["one", "two", "three"]


@pytest.mark.parametrize(("checkpoint", "code"), [(True, 0), (False, 1)])
def test_a_run_that_flower_lost_goes_on_from_its_checkpoint(
    tools, tmp_path, monkeypatch, checkpoint, code
):
    submit = tools("submit")
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(submit, "_QUIET", 0.0)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    settings = {"seed": 1, "output-dir": str(tmp_path / "results"), "run-name": "a"}
    submitted = []

    class Losing:
        """A Flower that gives up the first run."""

        def submit(self, app, run_config):
            submitted.append(run_config)
            if len(submitted) == 1:
                folder = tmp_path / "results" / "a"
                past_run(folder, checkpoint=checkpoint, finished=False, overrides=settings)
            return str(len(submitted))

        def log(self, run_id):
            yield "some words"

        def status(self, run_id):
            lost = submit.RunStatus("finished:failed", "No heartbeat received from the task")
            return lost if run_id == "1" else submit.RunStatus("finished:completed", "")

    assert submit.start(Losing(), settings) == code
    assert [run.get("resume-from") for run in submitted[1:]] == [str(tmp_path / "results/a")] * (
        1 - code
    )
