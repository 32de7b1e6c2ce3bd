"""Can a SuperNode of this machine talk to a server? What answers there, and of which version.

A SuperNode and a SuperLink of versions that speak different protocols retry forever, without a word
about why.
"""

import json
import re
import socket
import ssl
import time
from email.parser import Parser
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...core.wire.versions import flower_version, nodes_speak
from ..checks import CheckResult

_SECONDS = 5.0
_MOST = 1 << 20  # bytes of an answer that are looked at
_SETTINGS = 4  # the kind of frame that an HTTP/2 server, such as gRPC, sends first
_GRPC = "h2"  # as TLS calls it
_AHEAD, _BEHIND = 5.0, 305.0  # seconds by which the time that a SuperNode signs may differ
_TLS_IS_NEEDED = "name its certificate by --ca if it uses TLS"


class Answer(NamedTuple):
    """What a server speaks ("gRPC" or "HTTP"), and its version of Flower where it says so.

    ``ahead`` is by how many seconds the clock here is ahead of the server's, which gRPC hides.
    """

    speaks: str
    flower: str
    takes_nodes: bool
    ahead: float | None = None


_NOTHING = Answer("", "", takes_nodes=False)


def server_finding(address: str, authority: Path | None = None) -> CheckResult:
    """Return whether a SuperNode of the Flower that is installed here can talk to a server."""
    here, bad = flower_version(), partial(CheckResult, "server", "bad")
    ours = nodes_speak(here)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return bad(f"{address!r} is not HOST:PORT", "such as 10.0.0.5:9092")
    try:
        answer = ask(host, int(port), authority)
    except ssl.SSLError as error:
        advice = "use the server's own ca.crt, and a name that its certificate has"
        return bad(f"{address}: {error}", advice)
    except OSError as error:
        advice = "is the server up, its port open in the firewall, the address right?"
        return bad(f"{address} cannot be reached: {error}", advice)
    if not answer.speaks:
        advice = _TLS_IS_NEEDED if authority is None else "is this the port of a SuperLink?"
        return bad(f"{address} does not answer like a SuperLink", advice)
    grpc = answer.speaks == "gRPC"
    unknown = "as SuperLinks up to 1.39 do" if grpc else "behind a proxy for devices"
    they = f"it has flwr {answer.flower}" if answer.flower else unknown
    found = f"{address} speaks {answer.speaks}, {they}; SuperNodes here have flwr {here}"
    if answer.ahead is not None:
        found += f"; the clock here is {answer.ahead:+.0f} s from the server's"
        if not -_BEHIND < answer.ahead < _AHEAD:
            advice = f"{_AHEAD:g} s ahead or {_BEHIND:g} s behind is refused: set it, best by NTP"
            return bad(found, advice)
    if answer.takes_nodes and answer.speaks == ours:
        return CheckResult("server", "ok", found)
    return bad(f"{found}, and speak {ours}", _advice(answer, here))


def _advice(answer: Answer, here: str) -> str:
    if not answer.takes_nodes:  # the port of 1.39 for commands
        return (
            f"SuperNodes do not connect there: install flwr {answer.flower} here, and use the port "
            "of --fleet-api-address (9092)"
        )
    if answer.speaks == "gRPC":
        return f"install the server's version of flwr here, or flwr {here} on the server"
    if not answer.flower:
        return "install the server's version of flwr here, which is 1.40 or newer"
    return (
        f"pip install 'flwr=={answer.flower}' here, or start the SuperLink with "
        "FLWR_INTERNAL_GRPC_FLEET_API=1 in its environment and use its --fleet-api-address"
    )


def ask(host: str, port: int, authority: Path | None = None) -> Answer:
    """Ask a server for its interface, as a browser does; gRPC shows itself by its answer."""
    with socket.create_connection((host, port), _SECONDS) as connection:
        if authority is None:
            return _read(connection, host)
        context = ssl.create_default_context(cafile=str(authority))
        context.set_alpn_protocols([_GRPC, "http/1.1"])
        with context.wrap_socket(connection, server_hostname=host) as secured:
            if secured.selected_alpn_protocol() == _GRPC:
                return Answer("gRPC", "", takes_nodes=True)
            return _read(secured, host)


def _read(connection: socket.socket, host: str) -> Answer:
    question = f"GET /openapi.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    connection.sendall(question.encode())
    received = b""
    while len(received) < _MOST and not _is_settings(received):
        try:
            more = connection.recv(1 << 16)
        except TimeoutError:
            more = b""
        if not more:
            break
        received += more
    return understood(received)


def understood(received: bytes) -> Answer:
    """Return what an answer says."""
    if _is_settings(received):
        return Answer("gRPC", "", takes_nodes=True)
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/"):
        return _NOTHING
    ahead = _ahead(head.decode("latin-1"))
    if head.split()[1] == b"403" and b"nginx" in head:
        return Answer("HTTP", "", takes_nodes=True, ahead=ahead)  # docker/nginx.conf
    try:
        interface = json.loads(body)
        flower, paths = str(interface["info"]["version"]), interface["paths"]
    except (ValueError, KeyError, TypeError):
        return _NOTHING  # another web server
    known = re.fullmatch(r"\d+\.\d+[\w.]*", flower)
    return Answer("HTTP", flower, any("/fleet/" in p for p in paths), ahead) if known else _NOTHING


def _ahead(head: str) -> float | None:
    """Return by how many seconds this clock is ahead of what a server's answer says."""
    said = Parser().parsestr(head.partition("\r\n")[2], headersonly=True)["date"]
    try:
        return time.time() - parsedate_to_datetime(said).timestamp()
    except (TypeError, ValueError):
        return None


def _is_settings(received: bytes) -> bool:
    return len(received) > 3 and received[0] == 0 and received[3] == _SETTINGS
