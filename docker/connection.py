"""Flower's command line for the SuperLink of this deployment, over TLS."""

import os
from pathlib import Path
from typing import Any

from forager.tools.flower.cli import FlowerCli
from forager.tools.flower.env import environment

ADDRESS = os.environ.get("CONTROL_ADDRESS", "control:8000")
AUTHORITY = Path(os.environ.get("CA_FILE", "/public/ca.crt"))
NAME = "forager"  # of the connection in Flower's config file


class DeployedCli(FlowerCli):
    """``flwr`` for a SuperLink that shows a certificate, with enrolment.

    Parameters
    ----------
    home : Path
        Flower's folder; its config file is replaced.
    address : str
        Host and port of the SuperLink's Control API.
    authority : Path
        The certificate that the SuperLink's must be signed by.
    """

    def __init__(self, home: Path, address: str = ADDRESS, authority: Path = AUTHORITY) -> None:
        super().__init__(0, environment(home))
        (home / "config.toml").write_text(
            f'[superlink.{NAME}]\naddress = "{address}"\n'
            f'root-certificates = "{authority.absolute()}"\n',
            encoding="utf-8",
        )

    def register(self, public_key: Path, name: str) -> str:
        """Let the owner of a key take part; return its node id."""
        return str(
            self._ask("supernode", "register", str(public_key), NAME, "--name", name)["node-id"]
        )

    def unregister(self, node_id: str) -> None:
        """Shut a node out, for good: Flower never takes its key again."""
        self._ask("supernode", "unregister", node_id, NAME)

    def nodes(self) -> dict[str, str]:
        """Return the status of every node: registered, online, offline or unregistered."""
        found = self._ask("supernode", "list", NAME)["nodes"]
        return {str(node["node-id"]): str(node["status"]) for node in found}

    def unfinished(self) -> list[str]:
        """Return the ids of runs that are waiting or going on."""
        runs: list[dict[str, Any]] = self._ask("list", NAME)["runs"]
        return [str(run["run-id"]) for run in runs if not run["status"].startswith("finished")]

    def stop(self, run_id: str) -> None:
        """End a run."""
        self._ask("stop", run_id, NAME)


def connect() -> DeployedCli:
    """Return the command line with its files in ``FLWR_HOME``."""
    return DeployedCli(Path(os.environ["FLWR_HOME"]))
