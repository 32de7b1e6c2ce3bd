"""Run a federated training by ``flwr run``: ``python -m forager.tools.flower.run -c "seed=1"``.

It starts a SuperLink of its own for Flower's simulation, submits this project, shows the run's
progress, and stops everything again. The exit code is 0 only if the run succeeded.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ...core.config import ConfigError, Scalar, default_config, read_config
from ...core.config.overrides import parse_overrides, toml_value
from ...core.tasks import TaskError, load_task
from ...core.tasks.errors import advice
from ...server_app.interrupt import Interrupted, stop_on_signals
from ...server_app.run_folder import RunFolder, new_name
from ..report import summary_table, write_report
from ..report.history import History
from ..report.story import ended_well
from .cli import FlowerCli, FlowerError, RunStatus
from .env import FLOWER_HOME, PROGRAMS, PROJECT, environment
from .processes import Program, ProgramError, answers, free_port

FAILED, REFUSED, INTERRUPTED = 1, 2, 130  # exit codes
_PATHS = ("resume-from", "data.path", "data.cache-dir")  # keys that name files
_CAUSE = "Simulation failed with exception: "
_START_SECONDS = 180.0  # machines may be slow or busy


@dataclass(frozen=True)
class Plan:
    """A run that is about to start."""

    run_config: dict[str, Scalar]
    num_clients: int
    folder: Path

    @property
    def federation(self) -> str:
        """Flower's settings for the simulation: one client at a time on each core."""
        workers = min(_cores(), self.num_clients)
        return (
            f"num-supernodes={self.num_clients} client-resources-num-cpus=1 "
            f"init-args-num-cpus={workers} init-args-log-to-driver=false "
            'init-args-logging-level="error"'
        )

    def continuation(self) -> str:
        """Return the run config that goes on with this run from its last checkpoint.

        >>> Plan({"seed": 1, "run-name": "a"}, 10, Path("/runs/a")).continuation()
        "seed=1 resume-from='/runs/a'"
        """
        same = {k: v for k, v in self.run_config.items() if k not in ("output-dir", "run-name")}
        settings = {**same, "resume-from": str(self.folder)}
        return " ".join(f"{key}={toml_value(value)}" for key, value in settings.items())


def plan(overrides: dict[str, Scalar]) -> Plan:
    """Check the run config and settle where the run's files will be.

    The ServerApp runs in another folder, so every path is made absolute here.
    """
    config = read_config({**default_config(), **overrides})
    load_task(config.task_spec()).client_data(0, config.num_clients)  # can it be partitioned?
    run_config = dict(overrides)
    for key in _PATHS:
        if run_config.get(key):
            run_config[key] = _absolute(str(run_config[key]))
    output = overrides.get("output-dir")
    run_config["output-dir"] = _absolute(str(output)) if output else str(PROJECT / "runs")
    run_config["run-name"] = config.run_name or new_name()
    folder = Path(str(run_config["output-dir"]), str(run_config["run-name"]))
    if config.resume_from:
        earlier = Path(str(run_config["resume-from"]))
        folder = earlier.parent.parent if earlier.is_file() else earlier
    return Plan(run_config, config.num_clients, folder)


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def simulation(home: Path) -> Iterator[FlowerCli]:
    """Run a SuperLink for simulations; give Flower's command line for it.

    Parameters
    ----------
    home : Path
        Where Flower keeps its state and its logs; made if missing.
    """
    home.mkdir(parents=True)
    # Sockets of Ray lie below this folder, and their paths may be 104 characters long at most.
    short = "/tmp" if Path("/tmp").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="forager-", dir=short) as scratch:
        env = environment(home) | {
            "FLWR_LOG_LEVEL": "ERROR",
            "PYTHONWARNINGS": "ignore",
            "RAY_TMPDIR": scratch,
            "TMPDIR": scratch,
        }
        # Flower's simulation imports client code from where its SuperLink was started: nowhere.
        empty = Path(scratch, "empty")
        empty.mkdir()
        with _superlink(env, empty, home / "superlink.log") as port:
            yield FlowerCli(port, env)


@contextmanager
def _superlink(env: dict[str, str], cwd: Path, log: Path) -> Iterator[int]:
    port = free_port()
    command = [str(PROGRAMS / "flower-superlink"), "--insecure", "--simulation"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--disable-runtime-dependency-installation"]
    with Program(command, env=env, cwd=cwd, log=log) as superlink:
        superlink.wait_for(lambda: answers(port), _START_SECONDS)
        yield port


def show_progress(lines: Iterable[str], log: Path) -> None:
    """Keep a run's log in a file and print what the app itself says in it.

    Left out are Flower's own lines, a traceback, and the closing table, which comes later.
    """
    shown = True
    with log.open("w", encoding="utf-8") as file:
        for line in lines:
            print(line, file=file, flush=True)
            shown = shown and not line.startswith(("ERROR", "run completed", "run early-stop"))
            if shown and not line.startswith(("Using SuperLink", "Successfully installed", "INFO")):
                print(line, flush=True)


def wait_for_end(flower: FlowerCli, run_id: str, seconds: float = 120.0) -> RunStatus:
    """Return how a run ended; its log may end earlier, by a minute if its process was killed."""
    deadline = time.monotonic() + seconds
    while True:
        status = flower.status(run_id)
        if status.finished or time.monotonic() > deadline:
            return status
        time.sleep(0.5)


def launch(run: Plan, home: Path) -> int:
    """Run it; return the exit code."""
    try:
        with stop_on_signals():
            if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else it was started by nohup
                signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
            print(
                f"Starting Flower with {run.num_clients} simulated clients on {_cores()} cores; "
                "the first round waits for it.",
                flush=True,
            )
            with simulation(home) as flower:
                run_id = flower.submit(PROJECT, run.run_config, run.federation)
                with closing(flower.log(run_id)) as lines:
                    show_progress(lines, home / "run.log")
                status = wait_for_end(flower, run_id)
    except Interrupted as signalled:
        return _interrupted(run, home, str(signalled))
    except (FlowerError, ProgramError) as error:
        return _failed(str(error), home)
    if not status.succeeded:
        return _failed(_reason(status, home / "run.log"), home)
    return _finished(run, home)


def _finished(run: Plan, home: Path) -> int:
    folder = RunFolder.open(run.folder)
    if not ended_well(History.from_events(folder.read_events())):
        return _failed(f"{folder.path} has no proper end", home)
    print(f"\n{summary_table(folder)}")
    shutil.rmtree(home)
    return 0


def _reason(status: RunStatus, log: Path) -> str:
    """Return why a run failed: what Flower knows, else the end of the log."""
    details = status.details.removeprefix(_CAUSE)
    if details and details != "N/A":
        return details
    return f"{status.state}\n" + "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])


def _failed(reason: str, home: Path) -> int:
    print(f"\nThe run failed: {reason}\nLogs: {home}", file=sys.stderr)
    return FAILED


def _interrupted(run: Plan, home: Path, reason: str) -> int:
    print(f"\nThe run was stopped ({reason}).", file=sys.stderr)
    if any(run.folder.glob("checkpoints/*.safetensors")):
        write_report(RunFolder.open(run.folder))
        print(f'To go on: make run CONFIG="{run.continuation()}"', file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    return INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m forager.tools.flower.run", description=__doc__)
    parser.add_argument(
        "-c", "--run-config", action="append", default=[], metavar="'KEY=VALUE ...'"
    )
    if find_spec("ray") is None:  # Flower would end with code 701, and call that a success
        missing = advice(ModuleNotFoundError(name="ray"))
        print(f"a simulation needs Ray: {missing}", file=sys.stderr)
        return REFUSED
    try:
        run = plan(parse_overrides(parser.parse_args(arguments).run_config))
    except (ConfigError, TaskError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    return launch(run, FLOWER_HOME / "runs" / new_name())


if __name__ == "__main__":
    sys.exit(main())
