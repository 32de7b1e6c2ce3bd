"""A run that is about to start: what it is, where its files go, and what would stop it later."""

import os
import socket
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ...core.config import ConfigError, RunConfig, Scalar, default_config, read_config
from ...core.config.overrides import own_modules
from ...core.tasks import load_task
from ...server_app.app import run_title
from ...server_app.resume import is_model
from ...server_app.run_folder import RunFolderError, new_name
from ..engine.local import check_partitions

_ANSWER_SECONDS = 5.0
_PATHS = ("resume-from", "data.path", "data.cache-dir")  # keys that name files


@dataclass(frozen=True)
class RunPlan:
    """A run that is about to start."""

    run_config: dict[str, Scalar]
    num_clients: int
    folder: Path
    title: str = ""
    cluster: str = ""  # address of the Ray that simulates the clients; empty for one of its own

    @property
    def federation(self) -> str:
        """Flower's settings for the simulation: one client at a time on each core."""
        workers = min(cores(), self.num_clients)
        own = "" if self.cluster else f"init-args-num-cpus={workers} "  # a cluster has what it has
        return (
            f"num-supernodes={self.num_clients} client-resources-num-cpus=1 "
            f'{own}init-args-log-to-driver=false init-args-logging-level="error"'
        )

    @property
    def place(self) -> str:
        """Where the clients are simulated, in words."""
        return f"the Ray cluster {self.cluster}" if self.cluster else f"{cores()} cores"


def plan(overrides: dict[str, Scalar], app: Path | None = None, cluster: str = "") -> RunPlan:
    """Check what can be checked before anything starts, and settle where the run's files will be.

    The ServerApp runs in another folder, so every path is made absolute here.
    """
    config = read_config({**default_config(), **overrides})
    _check_cluster(cluster)
    if app is not None:
        _check_own_code(config, app)
    check_partitions(config)
    load_task(config.task_spec()).build_model()  # can it be imported, and does it fit the data?
    run_config = dict(overrides)
    for key in _PATHS:
        if run_config.get(key):
            run_config[key] = _absolute(str(run_config[key]))
    run_config["output-dir"] = _absolute(str(overrides.get("output-dir") or "runs"))
    run_config["run-name"] = config.run_name or new_name()
    folder = Path(str(run_config["output-dir"]), str(run_config["run-name"]))
    if config.resume_from and not is_model(config.resume_from):
        earlier = Path(str(run_config["resume-from"]))
        folder = earlier.parent.parent if earlier.is_file() else earlier
    elif os.path.lexists(folder):
        raise RunFolderError(
            f"run-name = {config.run_name!r}: {folder} exists already. Choose another name, or go "
            f"on with that run: forager resume {folder}"
        )
    return RunPlan(run_config, config.num_clients, folder, run_title(config), cluster)


def _check_cluster(address: str) -> None:
    """Refuse a cluster that nobody answers at: Flower would say so much later, at length."""
    if not address or address == "auto" or "://" in address:
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError(
            f"--cluster {address!r} cannot be reached ({error}); give the address of a running Ray "
            "cluster as host:port, or unset RAY_ADDRESS"
        ) from error


def _check_own_code(config: RunConfig, app: Path) -> None:
    """Refuse modules that this process can import and Flower's processes cannot."""
    within = [Path(sys.prefix), Path(sys.base_prefix), app]
    within += [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    for module, setting in own_modules(config.flat()).items():
        name = module.partition(".")[0]
        found = find_spec(name)
        place = Path(found.origin).resolve() if found and found.origin else None
        if place is None or any(place.is_relative_to(folder.resolve()) for folder in within):
            continue
        copy = app / name / "__init__.py" if place.name == "__init__.py" else app / f"{name}.py"
        if not copy.is_file():
            raise ConfigError(
                f"{setting}: {place} is not sent to clients with the app. Copy it to {app}, "
                "install it, or add --local to run in this process"
            )
        if copy.read_bytes() != place.read_bytes():
            raise ConfigError(
                f"{setting}: {place} is imported here, and clients would get {copy}, which "
                "differs. Make them the same, or remove one"
            )


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
