"""Submit a run to the deployed SuperLink, follow it to its end, or go on with one that died.

The exit code is 0 only if the run succeeded. Losing the SuperLink for a while does not end it.
Where Flower gives a run up, because its ServerApp was silent for a minute, it is submitted again,
to go on from its last checkpoint.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from connection import DeployedCli, connect
from forager.core.config import ConfigError, Scalar, default_config, read_config
from forager.core.config.overrides import parse_overrides
from forager.core.log.events import RunFinished, read_event
from forager.server_app.run_folder import RunFolder
from forager.tools.flower.cli import FlowerError, RunStatus
from forager.tools.flower.env import PROJECT
from forager.tools.flower.packing import copy_to_pack, own_code, travels
from forager.tools.flower.run import FAILED, REFUSED, show_progress
from forager.tools.report import summary_table
from forager.tools.report.history import History
from forager.tools.report.story import ended_well

RESULTS = Path(os.environ.get("RESULTS", "/results"))
_PATIENCE = 300.0  # seconds without a SuperLink before we stop following
_DEAD_AFTER = 90.0  # Flower notices a dead ServerApp 60 s after its last sign of life
_QUIET = 60.0  # seconds after which nobody writes to a folder
_LOST = "No heartbeat"  # what Flower says of such a run


def new_run(texts: Sequence[str]) -> dict[str, Scalar]:
    """Return the run config of a new run, checked, with a folder among the results."""
    overrides = parse_overrides(texts)
    read_config({**default_config(), **overrides})
    fresh = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{token_hex(2)}"
    name = overrides.get("run-name") or fresh
    return {**overrides, "run-name": name, "output-dir": str(RESULTS)}


def can_go_on(folder: Path) -> bool:
    """Return whether a run has a checkpoint and has not ended properly."""
    return bool(last_checkpoint(folder)) and not ended_well(
        History.from_events(RunFolder(folder).read_events())
    )


def resumed_run(name: str, results: Path = RESULTS) -> dict[str, Scalar]:
    """Return the run config that goes on with a run: the named one, else the last that died."""
    folders = [results / name] if name else sorted(results.iterdir(), key=_last_change)
    candidates = [folder for folder in folders if folder.is_dir() and can_go_on(folder)]
    if not candidates:
        raise ConfigError(
            f"{name or 'no run'}: cannot be resumed; a run with a checkpoint and without "
            f"a proper end is needed, there are {sorted(p.name for p in results.iterdir())}"
        )
    folder = candidates[-1]
    return {**RunFolder(folder).read_config()["overrides"], "resume-from": str(folder)}


def run_folder(run_config: dict[str, Scalar]) -> Path:
    """Return where a run writes, new or resumed."""
    fresh = Path(str(run_config["output-dir"]), str(run_config.get("run-name")))
    return Path(str(run_config.get("resume-from") or fresh))


def wait_until_quiet(folder: Path) -> None:
    """Wait until a ServerApp that lost its run has written its last words.

    Files may seem to come from the future if the clock was set back: then they are watched.
    """
    seen, since = _last_change(folder), time.monotonic()
    while time.time() - seen < _QUIET and time.monotonic() - since < _QUIET:
        events = RunFolder(folder).read_events()
        if events and isinstance(read_event(events[-1]), RunFinished):
            return
        time.sleep(5.0)
        if (last := _last_change(folder)) != seen:
            seen, since = last, time.monotonic()


def last_checkpoint(folder: Path) -> str:
    """Return the name of a run's newest checkpoint, or nothing."""
    return max((path.name for path in folder.glob("checkpoints/round-*.safetensors")), default="")


def _last_change(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.glob("*")), default=0.0)


def lasting_log(flower: DeployedCli, run_id: str) -> Iterator[str]:
    """Yield a run's log to its end, over restarts of the SuperLink."""
    seen = 0
    while True:
        with closing(flower.log(run_id)) as lines:
            for number, line in enumerate(lines):  # it always starts from the beginning
                if number >= seen:
                    seen += 1
                    yield line
        if lasting_status(flower, run_id).finished:
            return
        time.sleep(2.0)


def lasting_status(flower: DeployedCli, run_id: str) -> RunStatus:
    """Return where a run stands; a SuperLink that is away is waited for."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return flower.status(run_id)
        except FlowerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(2.0)


def wait_until_idle(flower: DeployedCli) -> None:
    """Wait for runs that are ending: two at once would write the same folder."""
    deadline = time.monotonic() + _DEAD_AFTER
    while going := flower.unfinished():
        if time.monotonic() > deadline:
            raise FlowerError(f"run {', '.join(going)} is still running: follow or stop it first")
        print(f"waiting for run {', '.join(going)} to end", flush=True)
        time.sleep(10.0)


def follow(flower: DeployedCli, run_id: str) -> RunStatus:
    """Show a run to its end; return how it ended."""
    log = Path(os.environ["FLWR_HOME"]) / f"{run_id}.log"
    show_progress(lasting_log(flower, run_id), log)
    status = lasting_status(flower, run_id)
    if not status.succeeded:
        words = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        print(f"\nThe run failed: {status.state} {status.details}\n{words}", file=sys.stderr)
    return status


def submit(flower: DeployedCli, run_config: dict[str, Scalar]) -> str:
    """Hand over the app with the modules that the config names; return the run's id."""
    own = own_code(run_config, PROJECT)
    print(travels(own), end="", flush=True)
    with TemporaryDirectory() as place:
        return flower.submit(copy_to_pack(PROJECT, Path(place, "app"), own), run_config)


def start(flower: DeployedCli, run_config: dict[str, Scalar]) -> int:
    """Submit and follow, again where Flower lost the run; return the exit code."""
    folder = run_folder(run_config)
    while True:
        before = last_checkpoint(folder)
        run_id = submit(flower, run_config)
        print(f"run {run_id}, results in {folder}", flush=True)
        status = follow(flower, run_id)
        if status.succeeded:
            print(f"\n{summary_table(RunFolder(folder))}")
            return 0
        if _LOST not in status.details or last_checkpoint(folder) == before:
            return FAILED
        wait_until_quiet(folder)
        run_config = resumed_run(folder.name, folder.parent)
        print(f"\nGoing on from {last_checkpoint(folder)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="start a new run")
    run.add_argument("-c", "--run-config", action="append", default=[], metavar="'KEY=VALUE ...'")
    resume = actions.add_parser("resume", help="continue a run from its last checkpoint")
    resume.add_argument("name", nargs="?", default="", help="by default the last that died")
    actions.add_parser("follow", help="show the run that is going on")
    actions.add_parser("stop", help="end what is going on")
    options = parser.parse_args(arguments)
    flower = connect()
    try:
        if options.action == "run":
            return start(flower, new_run(options.run_config))
        if options.action == "resume":
            wait_until_idle(flower)
            run_config = resumed_run(options.name)
            wait_until_quiet(run_folder(run_config))
            return start(flower, run_config)
        for run_id in flower.unfinished():
            if options.action == "stop":
                flower.stop(run_id)
            elif not follow(flower, run_id).succeeded:
                return FAILED
        return 0
    except (ConfigError, FlowerError) as error:
        print(error, file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
