"""One run of a comparison, in a worker process: what it costs, up to its budget."""

import hashlib
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from time import process_time
from typing import Any
from urllib.parse import quote

from flwr.app import Message

from ....client_app.side import side_of
from ....core.config import Scalar, default_config, read_config
from ....core.log.events import Count, Event, Exchanged, as_events
from ....core.tasks import TaskSpec
from ....core.tasks.errors import CONFIG_KEYS
from ....core.wire.keys import IDENTIFY
from ....server_app.app import build_loop, configure_logging
from ....server_app.callbacks.base import Callback
from ....server_app.callbacks.checkpoint import CheckpointError
from ....server_app.loop import Loop
from ....server_app.run_folder import RunFolder
from ...engine.local import LocalResult
from ...engine.local_grid import LocalGrid
from ...report.formatting import jain_index
from ...report.history import History
from ...report.rounds import traffic
from ..measures import EVENNESS, SELECTING
from ..records import Row
from .budget import CONTENT, LIMIT_AMOUNT, LIMIT_KIND, Budget

# Evaluation is for the experimenter; who is who is asked again whenever a run continues.
_NOT_COUNTED = ("evaluate", IDENTIFY)


class Metered(Event, name="metered"):
    """What a run has cost up to the end of a round."""

    bytes: Count = 0
    bytes_selecting: Count = 0
    client_seconds: float = 0.0
    simulated_seconds: float = 0.0


class MeteredGrid(LocalGrid):
    """A local grid that measures what its clients do."""

    client_seconds = 0.0  # processor time of all clients' handlers so far

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer pending messages and measure how long that takes."""
        ids = list(message_ids)
        waiting = list({id(t): t for i in ids if (t := self.pending_table(i)) is not None}.values())
        for requests in waiting:  # a device has its data at hand before the clock starts
            contexts = [self.contexts[node] for node in requests.nodes]
            side_of(contexts[0]).holdings(contexts)
        started = process_time()
        replies = super().pull_messages(ids)
        if waiting and waiting[0].kind not in _NOT_COUNTED:
            self.client_seconds += process_time() - started
        return replies


class Meter(Callback):
    """Note after every round what the run has cost so far, and end it when its budget is spent."""

    def __init__(self, grid: MeteredGrid, budget: Budget, before: Metered) -> None:
        self.grid = grid
        self.budget = budget
        self._bytes = before.bytes
        self._selecting = before.bytes_selecting
        self._work = before.client_seconds
        self._time = before.simulated_seconds

    def on_run_start(self, loop: Loop) -> None:
        """Listen to what is sent."""
        journal = loop.federation.journal

        def listen(event: Event) -> None:
            if isinstance(event, Exchanged) and "bytes-test" not in (sent := traffic(event)):
                self._bytes += int(sum(sent.values()))
                self._selecting += int(sent.get("bytes-select", 0))
                self._time += event.simulated_seconds or 0.0
            journal(event)

        loop.federation.journal = listen

    def on_round_end(self, loop: Loop) -> str | None:
        """Record the cost; a text ends the run."""
        metered = Metered(
            round=loop.round,
            bytes=self._bytes,
            bytes_selecting=self._selecting,
            client_seconds=self._work + self.grid.client_seconds,
            simulated_seconds=self._time,
        )
        loop.federation.note(metered)
        spent = self.budget.spent([metered.to_dict()])
        return "early-stop" if spent >= self.budget.amount else None


_LENGTH = ("num-server-rounds", LIMIT_KIND, LIMIT_AMOUNT, "output-dir")


def run_candidate(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one strategy with one seed until its stage's budget is spent."""
    configure_logging(logging.WARNING if quiet else logging.INFO)
    budget = Budget(str(overrides[LIMIT_KIND]), float(overrides[LIMIT_AMOUNT]))
    home = Path(str(overrides["output-dir"])).parent
    folder = RunFolder(home / run_name(overrides))
    settings = {k: v for k, v in overrides.items() if k not in (LIMIT_KIND, LIMIT_AMOUNT, CONTENT)}
    settings["output-dir"] = str(home)
    reason = "completed"
    if budget.spent(rows_of(folder.read_events())) < budget.amount:
        reason = _play(folder, {**default_config(), **settings}, budget)
    rows: list[Row] = budget.within(rows_of(folder.read_events()))
    return LocalResult(folder.path, reason, [dict(row) for row in rows])


def run_name(overrides: Mapping[str, Scalar]) -> str:
    """Return the name of a run's folder: the same for every length of it."""
    settings = {key: value for key, value in overrides.items() if key not in _LENGTH}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return f"{quote(str(settings.get('strategy', 'run')), safe='')}-{settings['seed']}-{digest}"


def _play(folder: RunFolder, run_config: dict[str, Any], budget: Budget) -> str:
    config = read_config(run_config)
    _warm_up(config.task_spec(), config.num_clients)
    grid = MeteredGrid.of_run(config, run_config)
    try:
        _, loop = build_loop(grid, {**run_config, "resume-from": str(folder.path)})
    except CheckpointError:  # new, or stopped before anything was saved
        shutil.rmtree(folder.path, ignore_errors=True)
        _, loop = build_loop(grid, {**run_config, "run-name": folder.path.name})
    costs = [event for event in as_events(folder.read_events()) if isinstance(event, Metered)]
    meter = Meter(grid, budget, costs[-1] if costs else Metered())
    loop.callbacks = [meter, *loop.callbacks]
    return loop.run()


@lru_cache(maxsize=4)
def _warm_up(spec: TaskSpec, num_clients: int) -> None:
    """Train one client once: what a process does only the first time is nobody's work."""
    task = {CONFIG_KEYS.get(name, name): value for name, value in asdict(spec).items()}
    sizes = {"num-clients": num_clients, "clients-per-round": 1, "num-server-rounds": 1}
    with tempfile.TemporaryDirectory(prefix="warm-up-") as folder:
        run_config = {**default_config(), **task, **sizes, "output-dir": folder}
        _, loop = build_loop(LocalGrid(num_clients, run_config), run_config)
        loop.callbacks = []
        loop.run()


def rows_of(log: Iterable[Event | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per round, from 0 (before training) on, with costs and evenness up to there."""
    events = list(as_events(log))
    history = History.from_events(events)
    costs = {event.round: event for event in events if isinstance(event, Metered)}
    rounds = sorted(history.rows)
    rows: list[dict[str, Any]] = [{"round": number, **history.rows[number]} for number in rounds]
    for row, even in zip(rows, _evenness(history, rounds), strict=True):
        cost = costs.get(row["round"], Metered())
        row |= cost.model_dump(by_alias=True, exclude={"round", "cohort", "time"})
        if even is not None:
            row[EVENNESS] = even
    choosing = accumulate(row.get("select-seconds", 0.0) for row in rows)
    for row, seconds in zip(rows, choosing, strict=True):
        row[SELECTING] = seconds
    return rows


def _evenness(history: History, rounds: list[int]) -> list[float | None]:
    """Return Jain's index of the times that clients were chosen up to each round."""
    counts: Counter[str] = Counter()
    found = []
    for number in rounds:
        counts.update(history.chosen.get(number, []))
        never = history.population - len(counts)
        found.append(jain_index([*counts.values(), *[0] * never]))
    return found
