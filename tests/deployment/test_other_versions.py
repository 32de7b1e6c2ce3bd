"""A SuperNode that the server does not understand says which version it is and what to do."""

import datetime
import importlib.util
import ipaddress
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PLACE = Path(__file__).parents[2] / "docker" / "supernode.py"
GONE = (
    "Failed to initialize the connection to the SuperLink.",
    "Client error '404 Not Found' for url 'http://fl.example.org:8000/v1/fleet/register-node'",
)


@pytest.fixture
def supernode() -> ModuleType:
    """The program of devices, as a module."""
    spec = importlib.util.spec_from_file_location("supernode", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_attempts_in_vain_are_explained_once(
    supernode: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = "print('WARNING: Connection attempt failed, retrying in 0.4 seconds', flush=True)"
    program = f"for _ in range(20):\n    {attempt}\nraise SystemExit(1)"
    assert supernode.run([sys.executable, "-c", program], "camera-7", "fl.example.org:9092") == 1
    said = capfd.readouterr().out
    assert said.count("camera-7: fl.example.org:9092 does not answer") == 1
    assert f"version {supernode.flower_version()}" in said
    assert "constraints.txt" in said


def test_one_attempt_in_vain_is_nothing(
    supernode: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "print('Connection attempt failed, retrying'); print('SuperNode ID: 7')"
    supernode.run([sys.executable, "-c", program], "camera-7", "fl.example.org:9092")
    assert "does not answer" not in capfd.readouterr().out


def test_an_older_server_that_knows_no_nodes_over_http(supernode: ModuleType) -> None:
    said = supernode.reason(GONE, "camera-7", "fl.example.org:8000")
    assert said.startswith("the server at fl.example.org:8000 has Flower 1.39 or older")
    assert f"flwr {supernode.flower_version()}" in said
    assert "--fleet-api-address" in said


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[list[str]], tuple[str, Path]]]:
    """A server with TLS that offers protocols; its address and its certificate."""
    certificate = self_signed(tmp_path)
    sockets: list[socket.socket] = []

    def start(protocols: list[str]) -> tuple[str, Path]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, tmp_path / "key.pem")
        if protocols:
            context.set_alpn_protocols(protocols)
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}", certificate

    yield start
    for one in sockets:
        one.close()


def self_signed(folder: Path) -> Path:
    """Make a certificate for this machine, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, plain),
    )
    path = folder / "cert.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    ("here", "protocols", "words"),
    [
        ("1.39.0", ["h2"], ""),
        ("1.42.0", [], ""),
        ("1.42.0", ["http/1.1"], ""),
        ("1.39.0", [], "speaks HTTP, so its Flower is 1.40 or newer; this device has flwr 1.39.0"),
        ("1.39.0", ["http/1.1"], "FLWR_INTERNAL_GRPC_FLEET_API=1"),
        (
            "1.42.0",
            ["h2"],
            "speaks gRPC, so its Flower is 1.39 or older; this device has flwr 1.42",
        ),
    ],
)
def test_the_first_handshake_shows_which_protocol_a_server_speaks(
    supernode: ModuleType,
    server: Callable[[list[str]], tuple[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    protocols: list[str],
    words: str,
) -> None:
    monkeypatch.setattr(supernode, "flower_version", lambda: here)
    address, certificate = server(protocols)
    said = supernode.greet(address, certificate)
    assert bool(said) == bool(words), said
    assert words in said
    assert not said or ("Install the server's version of flwr here" in said and address in said)
