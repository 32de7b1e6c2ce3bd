"""What this machine has: one finding per thing that a run may need."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from ..core.config import Scalar

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PACKAGES = ("flwr", "torch", "torchvision", "numpy", "scikit-learn", "matplotlib", "safetensors")
_ENOUGH_DISK = 2e9


@dataclass(frozen=True)
class CheckResult:
    """One check: "ok", a "note" (something optional is missing) or "bad" (runs cannot work)."""

    name: str
    state: str
    found: str
    advice: str = ""


def all_findings() -> Iterator[CheckResult]:
    """Look at everything, one after the other; a check that breaks is a finding itself."""
    for check in _CHECKS:
        try:
            yield check()
        except Exception as error:  # a doctor must not die of what it finds
            name = check.__name__.strip("_")
            yield CheckResult(name, "bad", f"{type(error).__name__}: {error}")


def _packages() -> CheckResult:
    have, missing = [], []
    for name in _PACKAGES:
        try:
            have.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        advice = "make venv, or pip install 'forager-fl[simulation]'"
        return CheckResult("packages", "bad", f"missing: {', '.join(missing)}", advice)
    return CheckResult("packages", "ok", ", ".join(have))


def _training() -> CheckResult:
    """Train one round in this process: data, model, client and server all work."""
    import tempfile

    from .engine.local import run_local

    with tempfile.TemporaryDirectory(prefix="forager-doctor-") as folder:
        keys: dict[str, Scalar] = {"num-server-rounds": 1, "num-clients": 4, "report": False}
        keys["output-dir"] = folder
        accuracy = float(run_local(keys).rounds[-1]["accuracy"])
    return CheckResult("training", "ok", f"one round on digits: accuracy {100 * accuracy:.0f} %")


def _machine() -> CheckResult:
    import torch

    from .flower.plan import cores

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    python = f"Python {sys.version.split()[0]} in {sys.prefix}"
    trains = f"{cores()} cores: as many simulated clients train at once"
    return CheckResult(
        "machine", "ok", f"{python}; {trains}; GPU: {gpu} (Forager trains on the CPU)"
    )


def _flower() -> CheckResult:
    from .flower.env import PROGRAMS, app_folder

    if app_folder() is None:
        advice = "forager init writes one; forager run --local works without"
        return CheckResult("simulation", "note", "this folder is not a Forager app", advice)
    if find_spec("ray") is None:
        advice = "pip install 'forager-fl[simulation]'; forager run --local works without"
        return CheckResult("simulation", "note", "Ray is not installed", advice)
    if not (PROGRAMS / "flower-superlink").exists():
        return CheckResult("simulation", "bad", f"no flower-superlink in {PROGRAMS}", "make venv")
    return CheckResult("simulation", "ok", f"Flower packs {app_folder()}")


def _ports() -> CheckResult:
    import socket

    taken = []
    for port, use in ((9092, "devices"), (8000, "the SuperLink's control")):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                taken.append(f"{port} ({use})")
    if taken:
        advice = (
            "give flower-superlink another --port or --fleet-api-address; make run needs neither"
        )
        return CheckResult("ports", "note", f"in use: {', '.join(taken)}", advice)
    return CheckResult("ports", "ok", "9092 and 8000 are free, for a deployed server")


def _disk() -> CheckResult:
    from .report.formatting import data_size

    free = shutil.disk_usage(Path.cwd()).free
    text = f"{data_size(free)} free here"
    if not os.access(Path.cwd(), os.W_OK):
        return CheckResult("disk", "bad", "this folder cannot be written", "go to one that can: cd")
    if free < _ENOUGH_DISK:
        return CheckResult(
            "disk", "note", text, "make room: a run with checkpoints may need gigabytes"
        )
    return CheckResult("disk", "ok", text)


def _data() -> CheckResult:
    from ..core.tasks.datasets.storage import cache_folder

    folder = cache_folder("")
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    kept = (
        f"downloads in {folder}: {', '.join(there)}" if there else f"no downloads in {folder} yet"
    )
    return CheckResult("data", "ok", f"digits, blobs and synthetic come with the package; {kept}")


def _chromium() -> CheckResult:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        advice = "apt-get install chromium; only make test-browser needs it"
        return CheckResult("chromium", "note", "not installed", advice)
    return CheckResult("chromium", "ok", found)


def _docker() -> CheckResult:
    if shutil.which("docker") is None:
        advice = "install Docker 20.10 or newer for make deploy; nothing else needs it"
        return CheckResult("docker", "note", "not installed", advice)
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if asked.returncode:
        last = (asked.stderr.strip() or "no answer").splitlines()[-1]
        advice = "systemctl start docker, and join the group docker; only make deploy needs it"
        return CheckResult("docker", "note", f"installed, but: {last}", advice)
    return CheckResult("docker", "ok", f"server {asked.stdout.strip()}")


_CHECKS: tuple[Callable[[], CheckResult], ...] = (
    *(_packages, _machine, _training, _flower),
    *(_disk, _data, _ports, _chromium, _docker),
)
