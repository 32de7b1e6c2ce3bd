"""A SuperLink and SuperNodes as real processes that talk to each other on this machine.

By gRPC where Flower's SuperNodes do, which is up to 1.39, else by HTTP.
"""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.wire.versions import nodes_speak
from ..tools.flower.cli import FlowerCli
from ..tools.flower.env import PROGRAMS, PROJECT, environment
from ..tools.flower.packing import copy_to_pack
from ..tools.flower.processes import Program, answers, free_port

START_SECONDS = 180  # machines may be slow or busy


class Federation:
    """Flower's processes, each with its own folder, home and log below one folder.

    Parameters
    ----------
    folder : Path
        Where they keep everything.
    supernode : sequence of str, optional
        The program that is a SuperNode; Flower's own by default.
    more : mapping of str to str, optional
        Variables that the environment of each has besides.
    """

    def __init__(
        self,
        folder: Path,
        *,
        supernode: Sequence[str] = (str(PROGRAMS / "flower-supernode"),),
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._supernode, self._more = supernode, more or {}
        self.programs: list[Program] = []
        port = free_port()
        options = ["--host", "127.0.0.1", "--port", str(port)]
        if nodes_speak() == "gRPC":  # at an address of its own
            self.fleet = f"127.0.0.1:{free_port()}"
            options += ["--fleet-api-address", self.fleet]
        else:
            self.fleet = f"127.0.0.1:{port}"
        options.append("--disable-runtime-dependency-installation")
        self.superlink = self._start([str(PROGRAMS / "flower-superlink")], "superlink", options)
        self.superlink.wait_for(lambda: answers(port) and listens(self.fleet), START_SECONDS)
        self.cli = FlowerCli(port, environment(folder / "superlink" / "home"))
        # Of a whole checkout Flower would look at every file, those of the environment too.
        self.app = copy_to_pack(PROJECT, folder / "app")

    def add_supernode(self, name: str, node_config: str) -> Program:
        """Start a SuperNode and wait until the SuperLink knows it."""
        (supernode,) = self.add_supernodes({name: node_config})
        return supernode

    def add_supernodes(self, node_configs: Mapping[str, str]) -> list[Program]:
        """Start SuperNodes, given by name, and wait until the SuperLink knows all of them."""
        online = len(self.activations())
        started = []
        for name, node_config in node_configs.items():
            options = ["--superlink", self.fleet, "--host", "127.0.0.1", "--port", str(free_port())]
            options += ["--node-config", node_config]
            started.append(self._start(self._supernode, name, options))
        for supernode in started:
            supernode.wait_for(
                lambda: len(self.activations()) >= online + len(started), START_SECONDS
            )
        return started

    def activations(self) -> list[str]:
        """Return the SuperLink's log of SuperNodes that came online."""
        lines = self.superlink.log.read_text().splitlines()
        return [line for line in lines if "Fleet.ActivateNode] Activated" in line]

    def stop(self) -> None:
        """End all of them: SuperNodes all at once, and the SuperLink last."""
        for program in self.programs:
            if program.alive and program is not self.superlink:
                program.family()  # remembers its children, to end those that it leaves
                program.process.terminate()
        for program in reversed(self.programs):
            program.stop()

    def _start(self, program: Sequence[str], name: str, options: list[str]) -> Program:
        folder = self.folder / name
        (folder / "home").mkdir(parents=True)
        started = Program(
            [*program, "--insecure", *options],
            env={**environment(folder / "home"), **self._more},
            cwd=folder,
            log=folder / "log.txt",
        )
        self.programs.append(started)
        return started


def listens(address: str) -> bool:
    """Tell whether somebody accepts connections there."""
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
