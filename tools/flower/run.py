"""Run a federated training by ``flwr run``, as ``forager run -c "seed=1"`` does.

It starts a SuperLink of its own for Flower's simulation, submits this project, shows the run's
progress, and stops everything again. The exit code is 0 only if the run succeeded.
"""

import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from ...core.config import Scalar, default_config, read_config
from ...core.config.overrides import toml_value
from ...core.config.reading import fill_axes, name_now
from ...core.methods.catalogue import AXES, all_settings
from ...core.tasks.errors import STARTED_IN
from ...server_app.retries import Interrupted, stop_on_signals
from ...server_app.run_folder import RunFolder
from ..demos import DEMOS
from ..report import summary_table, write_report
from ..report.formatting import run_command
from ..report.history import History
from ..report.story import ended_well
from ..trust import trust_option
from .announcement import announce, note_end, withdraw
from .cli import FlowerCli, FlowerError, RunStatus
from .env import PROGRAMS, PROJECT, app_settings, command_name, environment
from .guardian import guarded
from .packing import copy_to_pack, own_code, travels
from .plan import RunPlan
from .processes import Program, ProgramError, answers, free_port

FAILED, REFUSED, INTERRUPTED = 1, 2, 130  # exit codes
_CAUSE = "Simulation failed with exception: "
# Keys of the data, the model and the clients, as opposed to those of a method
_SITUATION = (
    *("task", "partition", "noise", "model", "metrics", "device", "num-clients", "fraction-train"),
    *("clients-per-round", "local-epochs", "local-steps", "batch-size", "learning-rate"),
    *("momentum", "weight-decay"),
)
_SECTIONS = ("data.", "split.", "groups.", "corruption.", "net.", "optimiser.", "devices.")
_WIDEST = 60  # characters of a command that others are aligned with
_START_SECONDS = 180.0  # machines may be slow or busy


@contextmanager
def simulation(home: Path, run: Path, cluster: str = "") -> Iterator[FlowerCli]:
    """Run a SuperLink for simulations; give Flower's command line for it.

    It ends with this process, even if that is killed.
    """
    home.mkdir(parents=True)
    # Sockets of Ray lie below this folder, and their paths may be 104 characters long at most.
    short = "/tmp" if Path("/tmp").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="forager-", dir=short) as scratch:
        env = environment(home) | {
            "FLWR_LOG_LEVEL": "ERROR",
            "PYTHONWARNINGS": "ignore",
            "RAY_TMPDIR": scratch,
            STARTED_IN: str(Path.cwd()),
            "TMPDIR": scratch,
        }
        if cluster:
            env["RAY_ADDRESS"] = cluster
        # Flower's simulation imports client code from where its SuperLink was started: nowhere.
        empty = Path(scratch, "empty")
        empty.mkdir()
        port, command = free_port(), [str(PROGRAMS / "flower-superlink"), "--insecure"]
        command += ["--simulation", "--host=127.0.0.1", f"--port={port}"]
        command += ["--disable-runtime-dependency-installation"]
        with (
            Program(command, env=env, cwd=empty, log=home / "superlink.log") as superlink,
            guarded(superlink.process.pid, Path(scratch), run),
        ):
            superlink.wait_for(lambda: answers(port), _START_SECONDS)
            yield FlowerCli(port, env)


def show_progress(lines: Iterable[str], log: Path) -> None:
    """Keep a run's log in a file and print what the app itself says in it.

    Left out are Flower's own lines, a traceback, and the closing table, which comes later. After an
    error of Flower's that the run survives, such as a reply that came too late, rounds are shown.
    """
    shown = True
    with log.open("w", encoding="utf-8") as file:
        for line in lines:
            print(line, file=file, flush=True)
            shown = shown or line.startswith("round ")
            shown = shown and not line.startswith(("ERROR", "run completed", "run early-stop"))
            if shown and not line.startswith(("Using SuperLink", "Successfully installed", "INFO")):
                print(line, flush=True)


class _Steps:
    """Says what is being waited for, and how long it took."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self, text: str) -> None:
        self.end()
        print(f"  {text} ...", end="", flush=True)
        self._since = time.monotonic()

    def end(self) -> None:
        if self._since is not None:
            print(f" {time.monotonic() - self._since:.1f} s", flush=True)
        self._since = None

    def until_first(self, lines: Iterable[str], run: Path) -> Iterator[str]:
        """Pass lines on; the first that the app itself says ends the last step."""
        for line in lines:
            if self._since is not None and line and not line.startswith(("Using", "INFO")):
                self.end()
                withdraw(run)
            yield line


def wait_for_end(flower: FlowerCli, run_id: str, seconds: float = 120.0) -> RunStatus:
    """Return how a run ended; its log may end earlier, by a minute if its process was killed."""
    deadline = time.monotonic() + seconds
    while True:
        status = flower.status(run_id)
        if status.finished or time.monotonic() > deadline:
            return status
        time.sleep(0.5)


def launch(run: RunPlan, home: Path, app: Path = PROJECT) -> int:
    """Run it; return the exit code."""
    steps = _Steps()
    try:
        with stop_on_signals():
            if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else it was started by nohup
                signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
            announce(run.folder)
            own = own_code(run.run_config, app)
            print(
                f"{run.title}: {run.num_clients} simulated clients on {run.place}\n"
                f"{travels(own)}"
                f"Watch it in a browser: {command_name()} watch --web\n"
                "Flower takes 5 to 15 seconds to start, and the first round starts the clients:",
                flush=True,
            )
            steps.begin("starting Flower's server")
            with simulation(home, run.folder, run.cluster) as flower:
                steps.begin("packing the app and handing it over")
                packed = copy_to_pack(app, home / "app", own, run.run_config)
                run_id = flower.submit(packed, run.run_config, run.federation)
                steps.begin("starting the run")
                with closing(flower.log(run_id)) as lines:
                    show_progress(steps.until_first(lines, run.folder), home / "run.log")
                steps.begin("stopping Flower")
                status = wait_for_end(flower, run_id)
    except Interrupted as signalled:
        steps.end()
        return _interrupted(run, home, str(signalled))
    except (FlowerError, ProgramError) as error:
        steps.end()
        return _failed(str(error), home)
    finally:
        withdraw(run.folder)
    steps.end()
    if not status.succeeded:
        return _failed(_reason(status, home / "run.log"), home)
    return _finished(run, home)


def _finished(run: RunPlan, home: Path) -> int:
    folder = RunFolder.open(run.folder)
    if not ended_well(History.from_events(folder.read_events())):
        return _failed(f"{folder.path} is incomplete", home)
    print(f"\n{summary_table(folder)}\n\n{suggestions(run.run_config, run.folder)}")
    shutil.rmtree(home)
    return 0


def suggestions(run_config: Mapping[str, Scalar], folder: Path) -> str:
    """Return what to try after a run, as commands."""
    program = command_name()
    usual = folder.resolve().parent == Path("runs").resolve()  # where commands look by themselves
    which = "" if usual else f" {short(folder)}"
    strategy = name_now(str(run_config.get("strategy") or "fedavg"))
    other = "fedavg" if strategy != "fedavg" else "cosage"
    demo = strategy if strategy in DEMOS else "ios"
    there = app_settings()  # commands take these from the app in this folder
    same = {
        key: value
        for key, value in run_config.items()
        if describes_the_situation(key) and there.get(key) != value
    }
    config = read_config({**default_config(), **run_config})
    goal = " --goal clients" if config.cohorts != "none" else ""  # what the run was judged by
    preset = fill_axes(config.strategy, {})
    own = {key: name_now(str(v)) if key in AXES else v for key, v in run_config.items() if v != ""}
    own = {key: value for key, value in own.items() if preset.get(key) != value}
    parts = [f"{key}={toml_value(v)}" for key, v in own.items() if _is_of_the_strategy(key)]
    row = f'"{" ".join([strategy, *parts])}"' if parts else strategy
    other = strategy if any(_is_of_the_strategy(key) for key in own if key in AXES) else other
    lines = {f"{program} report{which} --open": "open the report of this run"}
    if config.data_selector == "examined":  # no strategy: its diagnosis says what to compare
        lines[f"{program} diagnose {short(folder)} --target 0.9"] = "the diagnosis, with a target"
    else:
        lines[f"{program} demo {demo}"] = "a method on data where it helps, and its baseline"
        compare = run_command(same, f"{program} compare {row} {other}{goal}")
        lines[compare] = "better, or by chance?"
    width = min(_WIDEST, max(map(len, lines)))
    return "Next:\n" + "\n".join(f"  {line:<{width}}  {why}" for line, why in lines.items())


def describes_the_situation(key: str) -> bool:
    """Return whether strategies are compared under the same value of a key."""
    shares = ("data.client-test-share", "fraction-evaluate")  # a comparison sets its own
    return key not in shares and (key in _SITUATION or key.startswith(_SECTIONS))


def _is_of_the_strategy(key: str) -> bool:
    """Return whether a key makes a strategy another one: an axis, or a setting of a method."""
    sections = {settings.section for settings in all_settings()} | {"fine-tune", "personalise"}
    return not describes_the_situation(key) and (key in AXES or key.split(".")[0] in sections)


def _reason(status: RunStatus, log: Path) -> str:
    """Return why a run failed: what Flower knows, else the end of the log."""
    details = status.details.removeprefix(_CAUSE)
    if details and details != "N/A":
        return details
    return f"{status.state}\n" + "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])


def _failed(reason: str, home: Path) -> int:
    print(f"\nThe run failed: {reason}\nLogs: {home}", file=sys.stderr)
    return FAILED


def _interrupted(run: RunPlan, home: Path, reason: str) -> int:
    if (run.folder / "events.jsonl").exists():
        folder = RunFolder.open(run.folder)
        if ended_well(History.from_events(folder.read_events())):  # it was quicker
            print("\nThe run completed before it was stopped.", file=sys.stderr)
            return _finished(run, home)
    print(f"\nThe run was stopped ({reason}).", file=sys.stderr)
    note_end(run.folder, "interrupted", reason)
    if any(run.folder.glob("checkpoints/*.safetensors")):
        write_report(RunFolder.open(run.folder))
        how = f"{command_name()} resume {short(run.folder)}{trust_option(run.run_config)}"
        print(f"To continue: {how}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    return INTERRUPTED


def short(path: Path) -> str:
    """Write a path as the user would type it here."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
