"""Run this device's SuperNode, once it is sure that the device has what it needs.

Read from the environment: ``NAME`` (stays the same for the life of the device), ``SERVER``,
``DATA`` (the device's own data), and for trials without any ``PARTITION``, such as ``2/3``;
``TAGS``, such as ``gpu,site-a``, by which runs can choose their devices; ``INSECURE=1`` does
without TLS and key, for trials on one machine. Options on the command line go to
``flower-supernode``. When that ends, what Flower said last is explained.

Needs nothing but Python and Flower, so that a device without Docker can have a copy of this file.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import zipfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CREDENTIALS = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/credentials"))  # as systemd says it
STATE = Path(os.environ.get("STATE_DIRECTORY", "/state"))
INSECURE = bool(os.environ.get("INSECURE"))
LEAN = Path(__file__).with_name("lean")  # programs of Flower's with a shorter start
_LEAST_SPACE = 16 << 20  # bytes that the state of a device may need
_REACH_SECONDS = 5.0
_LAST_LINES = 60  # of Flower's, among which the reason is looked for

# What OpenSSL says at first or Flower at its end, and what it means to the owner of the device.
_REASONS = {
    r"certificate has expired": (
        "the server's certificate has expired, or this device's clock is wrong. On the server: "
        "docker/forager.sh server, then docker/forager.sh compose restart superlink"
    ),
    r"certificate is not yet valid": "this device's clock is behind. Set it, best by NTP",
    r"mismatch, certificate is not valid": (
        "the server's certificate does not name {server}. On the server: give it by "
        "--name to forager server (with Docker: add it to SERVER_NAMES in docker/.env, then "
        "docker/forager.sh server and docker/forager.sh compose restart superlink)"
    ),
    r"CERTIFICATE_VERIFY_FAILED|issuer certificate|self.signed certificate|signature failure": (
        "{credentials}/ca.crt is not of the server at {server}. Copy ca.crt from the "
        "server and give it by --ca (with Docker: docker/forager.sh ca > ca.crt there, "
        "docker/forager.sh device-key < ca.crt here)"
    ),
    r"404 Not Found.*/v1/fleet": (
        "the server at {server} has Flower 1.39 or older, and this device flwr {version}, which "
        "speaks HTTP. Up to 1.39 SuperNodes speak gRPC. Install the server's version of flwr here "
        "(constraints.txt has it), and let SERVER name its --fleet-api-address (port 9092)"
    ),
    r"code: 2004": (
        "the server does not let this key in. If the device crashed a moment ago, it will within a "
        "minute: nothing to do. Else the key is not registered or was revoked. On the server: flwr "
        "supernode register {name}.pub forager --name {name} (with Docker: docker/forager.sh list, "
        "docker/forager.sh add {name} < {name}.pub)"
    ),
}
# Flower ends silently where the server does not accept the time of day that it signs.
_WRONG_CLOCK = (
    "this device's clock differs from the server's; more than 5 s ahead or 5 minutes behind is "
    "refused. Set it, best by NTP"
)
# After this Flower's SuperNode hangs, until somebody ends it: then it can be started again.
_REFUSED = "SSL/TLS handshake error detected"
_END_SECONDS = 20.0  # that it has to end by itself
_ATTEMPT = "Connection attempt failed"
_ATTEMPTS = 8  # in a row, after which the versions are suspected
_FIRST_HTTP = (1, 40)  # the first version of Flower whose SuperNodes do not speak gRPC
_GRPC = "h2"  # as TLS calls it
_REMEDY = (
    "Up to 1.39 SuperNodes speak gRPC with the SuperLink, from 1.40 on HTTP. Install the server's "
    "version of flwr here (constraints.txt has it), or the other way round"
)
_NO_ANSWER = (
    "{server} does not answer Flower's SuperNode of version {version}. If the server is up and "
    "SERVER is right, the versions differ. {remedy}. It keeps trying"
)
_OTHER_PROTOCOL = (
    "{server} speaks {theirs}, so its Flower is {they}; this device has flwr {version}, which "
    "speaks {ours}. {remedy}"
)
_GRPC_TOO = (
    ". A SuperLink from 1.40 on takes older devices only if FLWR_INTERNAL_GRPC_FLEET_API=1 is in "
    "its environment, at its --fleet-api-address"
)
_SHUT_OUT = (
    "the server has ended the session: the device was revoked, or the clock of one of them has "
    "jumped. The next start will tell"
)


def node_config(name: str, data: Path, partition: str, tags: str = "") -> str:
    """Return what the ClientApp needs to know about its device.

    >>> node_config("camera-7", Path("/none"), "2/3", "gpu")
    "client-id='camera-7' state-dir='/state' tags='gpu' partition-id=1 num-partitions=3"
    """
    if not re.fullmatch(r"[\w.:=, -]*", tags, re.ASCII):
        raise ValueError(
            f"TAGS = {tags!r}: tags are separated by commas; each is made of letters, digits and "
            "_ . : = -, such as gpu,site-a"
        )
    settings = f"client-id='{name}' state-dir='{STATE}'" + (f" tags='{tags}'" if tags else "")
    if os.path.exists(data):
        return f"{settings} data-path='{data}'"
    position, _, count = partition.partition("/")
    if not count:
        raise FileNotFoundError(
            f"{data}: there is no such file. Mount the folder with the device's data there "
            "(DEVICE_DATA), or set PARTITION=1/3 for a trial with a part of a built-in data set"
        )
    return f"{settings} partition-id={int(position) - 1} num-partitions={int(count)}"


def problems(data: Path, credentials: Path = CREDENTIALS, state: Path = STATE) -> list[str]:
    """Return what keeps this device from taking part."""
    files = () if INSECURE else (credentials / "ca.crt", credentials / "key")
    found = [
        f"{path} is missing: run device-key first (docker/README.md)"
        for path in files
        if not os.path.exists(path)
    ]
    # A folder that may not be entered hides what is in it.
    wanted = [*files, data.parent, data]
    found += [
        f"{path} cannot be read by user {os.getuid()}: change its permissions"
        for path in wanted
        if os.path.exists(path) and not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))
    ]
    readable = not found
    if readable and files and not is_certificate(files[0]):
        found.append(f"{credentials / 'ca.crt'} is not a certificate: device-key < ca.crt again")
    if readable and data.is_file() and not zipfile.is_zipfile(data):
        found.append(f"{data} is not an .npz file, or is damaged: write it again by numpy.savez")
    if not os.access(state, os.W_OK):
        found.append(f"{state} cannot be written by user {os.getuid()}: mount a volume there")
    elif shutil.disk_usage(state).free < _LEAST_SPACE:
        found.append(f"{state} has less than {_LEAST_SPACE >> 20} MB left: make room on its disk")
    return found


def is_certificate(path: Path) -> bool:
    """Return whether a file holds a certificate to check a server by."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def busy_ports(arguments: Sequence[str]) -> list[str]:
    """Return what to do about ports that the SuperNode needs and others have."""
    given = dict(text.split("=", 1) for text in arguments if text.startswith("--") and "=" in text)
    ports = {"--port": given.get("--port", "9094")}
    if health := given.get("--health-server-address"):
        ports["--health-server-address"] = health.rpartition(":")[2]
    found = []
    for option, port in ports.items():
        try:
            socket.create_server(("127.0.0.1", int(port))).close()
        except OSError as error:
            found.append(f"port {port}: {os.strerror(error.errno or 0)}; give another by {option}")
    return found


def greet(server: str, authority: Path) -> str:
    """Shake hands with the server once; return why it does not answer at present, or nothing.

    Flower silently retries forever where the server's certificate has another name, and where the
    server speaks another protocol than the SuperNode.

    Raises
    ------
    ssl.SSLCertVerificationError
        If it answers but is not the server that this device trusts.
    """
    host, _, port = server.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.set_alpn_protocols([_GRPC, "http/1.1"])
    try:
        with (
            socket.create_connection((host, int(port)), _REACH_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            return other_protocol(server, secured.selected_alpn_protocol() == _GRPC)
    except ssl.SSLCertVerificationError:
        raise
    except OSError as error:
        return (
            f"{server} cannot be reached ({error}): is the server up, its port open, SERVER right?"
        )


def other_protocol(server: str, grpc: bool, flower: str = "") -> str:
    """Return what to do where a server speaks gRPC, or not, and this device's Flower the other.

    >>> other_protocol("fl.example.org:9092", grpc=True, flower="1.39.0")
    ''
    >>> other_protocol("fl.example.org:9092", grpc=True, flower="1.42.0")[:61]
    'fl.example.org:9092 speaks gRPC, so its Flower is 1.39 or old'
    """
    here = flower or flower_version()
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", here))
    speaks_grpc = numbers[:2] < _FIRST_HTTP
    if not numbers or grpc == speaks_grpc:
        return ""
    theirs, they = ("gRPC", "1.39 or older") if grpc else ("HTTP", "1.40 or newer")
    ours = "gRPC" if speaks_grpc else "HTTP"
    words = {"server": server, "theirs": theirs, "they": they, "version": here, "ours": ours}
    return _OTHER_PROTOCOL.format(**words, remedy=_REMEDY) + ("" if grpc else _GRPC_TOO) + "."


def command(env: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """Return the SuperNode's command line."""
    config = node_config(
        env["NAME"], Path(env["DATA"]), env.get("PARTITION", ""), env.get("TAGS", "")
    )
    secured = [
        f"--root-certificates={CREDENTIALS / 'ca.crt'}",
        f"--auth-supernode-private-key={CREDENTIALS / 'key'}",
    ]
    return [
        "flower-supernode",
        f"--superlink={env['SERVER']}",
        *(["--insecure"] if INSECURE else secured),
        f"--node-config={config}",
        *options,
    ]


def reason(lines: Iterable[str], name: str, server: str) -> str:
    """Return what the last words of a SuperNode mean, or nothing if that is not known.

    >>> reason(["unable to get local issuer certificate"], "camera-7", "fl.example.org:9092")[:51]
    '/credentials/ca.crt is not of the server at fl.exam'
    """
    text = "\n".join(lines)
    for pattern, meaning in _REASONS.items():
        if re.search(pattern, text):
            places = {"credentials": CREDENTIALS, "version": flower_version()}
            return meaning.format(name=name, server=server, **places)
    return ""


def flower_version() -> str:
    """Return the version of Flower that is installed here."""
    try:
        return version("flwr")
    except PackageNotFoundError:
        return "unknown"


def run(arguments: Sequence[str], name: str, server: str) -> int:
    """Run the SuperNode, show what it says and explain its end; return its exit code."""
    node = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    asked: list[int] = []  # signals that asked us to end
    let_in = threading.Event()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    ending = threading.Timer(_END_SECONDS, node.kill)
    ending.daemon = True
    attempts = 0

    def pass_on(number: int, frame: object) -> None:
        asked.append(number)
        node.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)

    def show() -> None:
        nonlocal attempts
        assert node.stdout is not None
        for line in node.stdout:
            print(line, end="", flush=True)
            last.append(line)
            attempts = attempts + 1 if _ATTEMPT in line else 0
            if attempts == _ATTEMPTS:
                told = {"server": server, "version": flower_version(), "remedy": _REMEDY}
                print(f"{name}: {_NO_ANSWER.format(**told)}", flush=True)
            if "SuperNode ID" in line:
                let_in.set()
            if _REFUSED in line and ending.ident is None:
                ending.start()

    reader = threading.Thread(target=show, daemon=True)
    reader.start()
    code = node.wait()
    ending.cancel()
    reader.join(2.0)  # children of the SuperNode may hold its output open for longer
    if asked:
        return code if code >= 0 else 128 - code
    silent = _SHUT_OUT if let_in.is_set() else _WRONG_CLOCK
    if meaning := reason(last, name, server) if code else silent:
        print(f"\n{name}: {meaning}", flush=True)
    return 1


def with_lean_programs(search_path: str, place: Path = LEAN) -> str:
    """Return the search path with the folder of shorter starts first, if the device has it.

    >>> with_lean_programs("/usr/bin", Path("/none"))
    '/usr/bin'
    """
    return f"{place}{os.pathsep}{search_path}" if place.is_dir() else search_path


def main() -> None:
    """Check, then run."""
    name, server = os.environ["NAME"], os.environ["SERVER"]
    found = problems(Path(os.environ["DATA"]))
    try:
        arguments = command(os.environ, sys.argv[1:])
        found += busy_ports(arguments)
    except (FileNotFoundError, ValueError) as error:
        found.append(str(error))
    if found:
        sys.exit("\n".join(f"{name}: {text}" for text in found))
    print(shlex.join(arguments), flush=True)
    try:
        if not INSECURE and (problem := greet(server, CREDENTIALS / "ca.crt")):
            print(f"{name}: {problem} It keeps trying", flush=True)
    except ssl.SSLCertVerificationError as error:
        sys.exit(f"{name}: {reason([error.verify_message], name, server) or error}")
    os.environ["PATH"] = with_lean_programs(os.environ.get("PATH", os.defpath))
    sys.exit(run(arguments, name, server))


if __name__ == "__main__":
    main()
