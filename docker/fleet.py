"""Who may take part: enrol, add, revoke and list devices.

Flower knows devices by numbers; the registry is a folder with one file per device that remembers
which number a name has.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from connection import DeployedCli, connect
from credentials import write
from forager.tools.flower.cli import FlowerError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
REVOKED = "unregistered"  # as Flower calls it


class Fleet:
    """The devices that were enrolled.

    Parameters
    ----------
    flower : DeployedCli
        The SuperLink's command line.
    registry : Path
        The folder that remembers names.
    """

    def __init__(self, flower: DeployedCli, registry: Path) -> None:
        self.flower = flower
        self.registry = registry
        self.status = flower.nodes()

    def entry(self, name: str) -> dict[str, str]:
        """Return what is remembered of a name, if anything."""
        path = self._path(name)
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def standing(self, name: str) -> str:
        """Return how a name stands with the SuperLink: online, unregistered, unknown, ..."""
        return self.status.get(self.entry(name).get("node-id", ""), "unknown")

    def add(self, name: str, public_key: str) -> str:
        """Enrol a device; say what was done."""
        same = self.entry(name).get("public-key", "").split()[:2] == public_key.split()[:2]
        standing = self.standing(name)
        if standing == REVOKED and same:
            return f"{name}: this key was revoked; make the device a new one"
        if standing not in (REVOKED, "unknown"):
            return f"{name}: {'is enrolled' if same else 'has another key: revoke that first'}"
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
            file.write(public_key)
            file.flush()
            node_id = self.flower.register(Path(file.name), name)
        entry = {"node-id": node_id, "public-key": public_key.strip()}
        write(self._path(name), json.dumps(entry).encode())
        self.status[node_id] = "registered"
        return f"{name}: enrolled as node {node_id}"

    def revoke(self, name: str) -> str:
        """Shut a device out; say what was done."""
        standing = self.standing(name)
        if standing in (REVOKED, "unknown"):
            return f"{name}: is not enrolled"
        self.flower.unregister(self.entry(name)["node-id"])
        return f"{name}: revoked; its messages are refused from now on"

    def names(self) -> list[str]:
        """Return all names that were ever enrolled."""
        return sorted(path.stem for path in self.registry.glob("*.json"))

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            sys.exit(f"name = {name!r} is not allowed: letters, digits and -_. only")
        return self.registry / f"{name}.json"


def enrol_published(fleet: Fleet, public: Path) -> None:
    """Enrol all whose public keys lie in a folder."""
    for path in sorted(public.glob("*.pub")):
        print(fleet.add(path.stem, path.read_text()), flush=True)


def show(fleet: Fleet) -> None:
    """Print all devices."""
    for name in fleet.names():
        print(f"{name:<24} {fleet.standing(name):<12} {fleet.entry(name)['node-id']}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", type=Path, default=Path("/registry"))
    parser.add_argument("--public", type=Path, default=Path("/public"))
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("enrol", help="all whose public keys are in the public folder")
    actions.add_parser("list")
    actions.add_parser("add", help="public key on standard input").add_argument("name")
    actions.add_parser("revoke").add_argument("name")
    options = parser.parse_args(arguments)
    try:
        fleet = Fleet(connect(), options.registry)
        if options.action == "enrol":
            enrol_published(fleet, options.public)
        elif options.action == "list":
            show(fleet)
        elif options.action == "add":
            print(fleet.add(options.name, sys.stdin.read()))
        else:
            print(fleet.revoke(options.name))
    except FlowerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
