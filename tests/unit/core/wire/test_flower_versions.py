"""Versions of Flower: which SuperNodes reach which SuperLink, and which private parts we use."""

import ast
from pathlib import Path

import flwr
import pytest
from forager.benchmarks.light_clients import node_connection
from forager.core.wire import flower_private
from forager.core.wire.versions import flower_version, nodes_speak, why_nobody_connects

ROOT = Path(__file__).resolve().parents[4]
PUBLIC = ("flwr.app", "flwr.serverapp", "flwr.clientapp")
PRIVATE = "core/wire/flower_private.py"
# Measures what a process costs that imports what Flower's own program does, and Flower itself.
ALLOWED = {PRIVATE, "benchmarks/peers/flower_rounds.py"}
FOLDERS = ("forager", "server_app", "client_app", "strategies", "selectors", "core", "tools")


def flower_modules(file: Path) -> list[str]:
    """Modules of Flower that a file imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(node.module or "")
    return [name for name in found if name.split(".")[0] == "flwr"]


def test_private_modules_of_flower_are_imported_in_one_file() -> None:
    files = [
        p for folder in (*FOLDERS, "benchmarks", "examples") for p in (ROOT / folder).rglob("*.py")
    ]
    private = {
        str(file.relative_to(ROOT))
        for file in files
        for module in flower_modules(file)
        if module != "flwr" and not module.startswith(PUBLIC)
    }
    assert private == ALLOWED


def test_the_version_here_is_that_of_flower() -> None:
    assert flower_version() == flwr.__version__
    assert nodes_speak() == nodes_speak(flwr.__version__)


@pytest.mark.parametrize(
    ("flower", "protocol", "reach"),
    [
        (
            "1.39.0",
            "gRPC",
            "SuperNodes up to 1.39 reach it, by gRPC at the SuperLink's --fleet-api-address",
        ),
        (
            "1.40.0",
            "HTTP",
            "SuperNodes from 1.40 on reach it, by HTTP at the SuperLink's --host and --port",
        ),
        ("1.43.0.dev20261101", "HTTP", "FLWR_INTERNAL_GRPC_FLEET_API=1"),
    ],
)
def test_who_reaches_a_server_depends_on_its_version(
    flower: str, protocol: str, reach: str
) -> None:
    assert nodes_speak(flower) == protocol
    text = why_nobody_connects(flower)
    assert reach in text
    assert f"flwr {flower}" in text


def test_the_connection_of_this_version_is_there() -> None:
    """The light clients of benchmarks use it; it connects on entering, not before."""
    assert hasattr(node_connection("127.0.0.1:1"), "__enter__")


def test_what_flower_lacks_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"flwr \d.* has no flwr\.nowhere\.it"):
        flower_private.needed("flwr.nowhere", "it")
