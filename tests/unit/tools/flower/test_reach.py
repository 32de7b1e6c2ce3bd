"""What answers at a server's address, for every pair of protocols."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from forager.tools.cli.app import app
from forager.tools.flower import reach
from typer.testing import CliRunner

GRPC = b"\x00\x00\x1e\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x03\xe8"


def superlink(flower: str, *paths: str) -> bytes:
    """The interface of a SuperLink as it describes itself."""
    interface = {
        "info": {"title": "SuperLink API", "version": flower},
        "paths": {path: {} for path in ("/health", *paths)},
    }
    body = json.dumps(interface).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + body


NEW = superlink("1.42.0", "/v1/fleet/register-node")
PROXY = b"HTTP/1.1 403 Forbidden\r\nServer: nginx\r\n\r\n"
OLD_COMMANDS = superlink("1.39.0", "/v1/control/start-run")


@pytest.fixture
def server() -> Iterator[Callable[[bytes], str]]:
    """Something that answers one question in one way."""
    sockets: list[socket.socket] = []

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("behind", "state", "words"),
    [
        (0, "ok", "the clock here is +0 s"),
        (3, "ok", "the clock here is +3 s"),
        (60, "bad", "5 s ahead or 305 s behind is refused: set it, best by NTP"),
        (-200, "ok", "the clock here is -200 s"),
        (-4000, "bad", "the clock here is -4000 s"),
    ],
)
def test_a_clock_that_would_be_refused_is_found(
    server: Callable[[bytes], str],
    monkeypatch: pytest.MonkeyPatch,
    behind: int,
    state: str,
    words: str,
) -> None:
    monkeypatch.setattr(reach, "flower_version", lambda: "1.42.0")
    monkeypatch.setattr(reach.time, "time", lambda: 1_800_000_000.0 + behind)
    date = format_datetime(datetime.fromtimestamp(1_800_000_000, UTC), usegmt=True)
    dated = NEW.replace(b"content-type", f"date: {date}\r\ncontent-type".encode())
    finding = reach.server_finding(server(dated))
    assert finding.state == state
    assert words in f"{finding.found}\n{finding.advice}"


@pytest.mark.parametrize(
    ("here", "answer", "state", "words"),
    [
        ("1.39.0", GRPC, "ok", "speaks gRPC"),
        ("1.42.0", NEW, "ok", "speaks HTTP, it has flwr 1.42.0"),
        ("1.39.0", NEW, "bad", "FLWR_INTERNAL_GRPC_FLEET_API=1"),
        ("1.39.0", NEW, "bad", "pip install 'flwr==1.42.0'"),
        ("1.42.0", GRPC, "bad", "install the server's version of flwr here"),
        ("1.42.0", OLD_COMMANDS, "bad", "install flwr 1.39.0 here, and use the port of --fleet"),
        ("1.39.0", OLD_COMMANDS, "bad", "--fleet-api-address (9092)"),
        ("1.39.0", b"220 mail.example.org ESMTP\r\n", "bad", "does not answer like a SuperLink"),
        ("1.39.0", b"HTTP/1.1 200 OK\r\n\r\n<html>", "bad", "does not answer like a SuperLink"),
        ("1.39.0", b"", "bad", "--ca if it uses TLS"),
        ("1.42.0", PROXY, "ok", "speaks HTTP, behind a proxy for devices"),
        ("1.39.0", PROXY, "bad", "which is 1.40 or newer"),
    ],
)
def test_what_answers_decides_what_to_do(
    server: Callable[[bytes], str],
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    answer: bytes,
    state: str,
    words: str,
) -> None:
    monkeypatch.setattr(reach, "flower_version", lambda: here)
    finding = reach.server_finding(server(answer))
    assert finding.state == state
    assert words in f"{finding.found}\n{finding.advice}"
    assert f"flwr {here}" in finding.found or "does not answer" in finding.found


def test_nobody_there_and_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    finding = reach.server_finding(f"127.0.0.1:{port}")
    assert "cannot be reached" in finding.found
    assert "firewall" in finding.advice
    for text in ("fl.example.org", ":9092", "fl.example.org:nine"):
        assert "is not HOST:PORT" in reach.server_finding(text).found


def test_the_command_ends_with_1_where_a_node_could_not_connect(
    server: Callable[[bytes], str],
) -> None:
    done = CliRunner().invoke(app, ["doctor", "--server", server(b"")])
    assert done.exit_code == 1
    assert "does not answer like a SuperLink" in done.output.replace("\n", " ")
