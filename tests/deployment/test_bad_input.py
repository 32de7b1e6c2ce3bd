"""What is wrong with a device is said in one line that tells what to do about it."""

import datetime
import importlib
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from deployed import DOCKER, Deployment
from forager.tools.flower.processes import free_port


def certified_server(folder, names, days):
    """A gRPC server with a certificate of the deployment's authority; its port."""
    sys.path.insert(0, str(DOCKER))
    credentials = importlib.import_module("credentials")
    sys.path.remove(str(DOCKER))
    issuer, signer = credentials.authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    common = issuer.subject.rfc4514_string().removeprefix("CN=")
    built = credentials._certificate(names[0], 1, key.public_key(), common)
    now = datetime.datetime.now(datetime.UTC)
    built._not_valid_before = (now - datetime.timedelta(days=9)).replace(tzinfo=None)
    built._not_valid_after = (now + datetime.timedelta(days=days)).replace(tzinfo=None)
    alternatives = credentials.x509.SubjectAlternativeName(map(credentials.general_name, names))
    certificate = built.add_extension(alternatives, critical=False).sign(signer, hashes.SHA256())
    pems = (
        credentials._private_pem(key, serialization.PrivateFormat.PKCS8),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pems]))
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The logs of devices that are refused, each for its own reason; they start all at once."""
    folder = tmp_path_factory.mktemp("refused")
    nowhere = f"127.0.0.1:{free_port()}"
    authority = folder / "authority"
    deployment = Deployment(folder, ["revoked"], runs=False)
    servers = {
        "expired": certified_server(authority, ["127.0.0.1"], days=-1),
        "misnamed": certified_server(authority, ["fl.example.org"], days=9),
    }
    for name, (_, address) in servers.items():
        deployment.more[name] = {"SERVER": address}
    deployment.more["offline"] = {"SERVER": nowhere}
    try:
        for name in ("stranger", "fooled", *deployment.more):
            deployment.make_key(name)
        other = folder / "other"
        parts = [other / part for part in ("authority", "public", "superlink", "serverapp")]
        for part in parts:
            part.mkdir(parents=True)
        issued = [f"--{part.name}={part}" for part in parts]
        deployment.tool("credentials.py", "server", "--names=127.0.0.1", *issued)
        shutil.copy(other / "public" / "ca.crt", folder / "fooled" / "credentials")
        deployment.fleet_tool("revoke", "revoked")
        names = ["stranger", "revoked", "fooled", *deployment.more]
        programs = {name: deployment.start_device(name, "1/3") for name in names}
        for name, program in programs.items():
            if name != "offline":
                assert program.process.wait(400) == 1, program.last_words(40)
        yield {name: program.last_words(100) for name, program in programs.items()} | {
            "addresses": {name: address for name, (_, address) in servers.items()},
            "nowhere": nowhere,
            "still-trying": programs["offline"].alive,
        }
    finally:
        deployment.stop()
        for server, _ in servers.values():
            server.stop(None)


@pytest.mark.parametrize("name", ["stranger", "revoked"])
def test_a_key_that_the_server_does_not_know(refused, name):
    line = refused[name].splitlines()[-1]
    assert line.startswith(f"{name}: the server does not let this key in.")
    assert f"docker/forager.sh add {name} < {name}.pub" in line


def test_the_authority_of_another_server(refused):
    line = refused["fooled"].splitlines()[-1]
    assert "credentials/ca.crt is not of the server at 127.0.0.1:" in line
    assert "docker/forager.sh device-key < ca.crt" in line


def test_a_certificate_that_has_expired(refused):
    line = refused["expired"].splitlines()[-1]
    assert line.startswith("expired: the server's certificate has expired")
    assert "docker/forager.sh compose restart superlink" in line


def test_a_certificate_for_another_name(refused):
    line = refused["misnamed"].splitlines()[-1]
    assert f"certificate does not name {refused['addresses']['misnamed']}" in line
    assert "SERVER_NAMES" in line


def test_a_server_that_is_not_there_is_waited_for(refused):
    assert f"offline: {refused['nowhere']} cannot be reached" in refused["offline"]
    assert "It keeps trying" in refused["offline"]
    assert refused["still-trying"]


# --- What can be known before Flower starts


@pytest.fixture
def device(tmp_path):
    """A function that starts a device which has all it needs but for what the test changes."""
    for part in ("credentials", "state", "data"):
        (tmp_path / part).mkdir()
    for name in ("ca.crt", "key"):
        (tmp_path / "credentials" / name).write_text("present")
    x = np.zeros((4, 2), dtype=np.float32)
    np.savez(tmp_path / "data" / "train.npz", x_train=x, y_train=np.arange(4) % 2)

    def start(*options, before=(), **env):
        settings = {
            "NAME": "camera-7",
            "SERVER": "127.0.0.1:1",
            "DATA": str(tmp_path / "data" / "train.npz"),
            "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
            "STATE_DIRECTORY": str(tmp_path / "state"),
        }
        done = subprocess.run(
            [*before, sys.executable, str(DOCKER / "supernode.py"), *options],
            env={**os.environ, **settings, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    return start


def test_no_data(device, tmp_path):
    (tmp_path / "data" / "train.npz").unlink()
    said = device()
    assert "ca.crt is not a certificate: device-key < ca.crt again" in said  # all at once
    assert "train.npz: there is no such file. Mount the folder" in said


def test_data_that_are_no_data(device, tmp_path):
    (tmp_path / "data" / "train.npz").write_bytes(b"x,y\n1,2\n")
    assert "is not an .npz file, or is damaged: write it again by numpy.savez" in device()


@pytest.mark.parametrize("closed", ["data/train.npz", "data", "credentials/key"])
def test_what_this_user_may_not_read(device, tmp_path, closed):
    (tmp_path / closed).chmod(0)
    # Root may read everything, unless it gives up that privilege.
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    said = device(before=as_anybody if os.getuid() == 0 else [])
    (tmp_path / closed).chmod(0o700)
    place = tmp_path / closed
    assert f"{place} cannot be read by user {os.getuid()}: change its permissions" in said


def test_no_room_for_its_state(device, tmp_path):
    room = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this system gives no file system of one's own (unshare --mount)")
    said = device(before=[*alone, "sh", "-c", room, "sh", str(tmp_path / "state")])
    assert "state has less than 16 MB left: make room on its disk" in said


def test_a_port_in_use(device):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = device(f"--port={port}", f"--health-server-address=127.0.0.1:{free_port()}")
        assert f"port {port}: Address already in use; give another by --port" in said
        said = device(f"--health-server-address=127.0.0.1:{port}", f"--port={free_port()}")
        assert "give another by --health-server-address" in said


def test_a_port_of_the_server_in_use(tmp_path):
    """Docker says which port; what to do about it is said by ``forager.sh``."""
    project, programs = tmp_path / "project", tmp_path / "bin"
    shutil.copytree(DOCKER, project / "docker")
    shutil.copy(DOCKER.parent / "pyproject.toml", project)
    programs.mkdir()
    error = "Bind for 127.0.0.1:9092 failed: port is already allocated"
    scripts = {
        "docker": "test $1 != compose",
        "docker-compose": f'case "$*" in *" up "*) echo "{error}" >&2; exit 1;; esac',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(project / "docker" / "forager.sh"), "server"],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PIP_FIND_LINKS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "port 9092 is taken by another program: set FLEET_PORT in docker/.env" in done.stderr
