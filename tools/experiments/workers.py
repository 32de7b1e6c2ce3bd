"""Worker processes that run one training after the other, each on one thread."""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import cast

from .records import Row, Scalar, SweepError

SUCCESSFUL_REASONS = ("completed", "early-stop")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Reply:
    """How one run ended; `error` is empty if it went well."""

    reason: str = ""
    error: str = ""
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)


def check_runner(runner: str) -> None:
    """Refuse a runner whose module does not exist, without importing that module."""
    module, _, function = runner.partition(":")
    try:
        found = bool(function) and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise SweepError(f"runner {runner!r}: no such module; write 'module:function'")


class WorkerPool:
    """Processes that run tasks, so many at the same time; they outlive a list of tasks."""

    def __init__(self, runner: str, processes: int, scratch: Path) -> None:
        self.runner, self.processes, self.scratch = runner, processes, scratch
        self._busy: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._started = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        _stop(self._busy, self._idle)

    def run(self, tasks: Sequence[Mapping[str, Scalar]]) -> Generator[tuple[int, Reply]]:
        """Run every task in one of the processes."""
        queue = deque(enumerate(tasks))
        while queue or self._busy:
            while queue and len(self._busy) < self.processes:
                self._busy.append(self._worker())
                self._busy[-1].give(*queue.popleft())
            wait([worker.connection for worker in self._busy], timeout=1.0)
            for worker in list(self._busy):
                reply = worker.reply()
                if reply is None:
                    continue
                finished = worker.task
                if queue and worker.process.is_alive():
                    worker.give(*queue.popleft())
                else:
                    self._dismiss(worker)
                yield finished, reply

    def _worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        self._started += 1
        return _Worker(self.runner, self.scratch / f"worker-{self._started}.log")

    def _dismiss(self, worker: _Worker) -> None:
        self._busy.remove(worker)
        if worker.process.is_alive():
            self._idle.append(worker)
        else:
            _stop([worker])


class _Worker:
    """The sweep's end of one worker process."""

    def __init__(self, runner: str, log: Path) -> None:
        context: SpawnContext = multiprocessing.get_context("spawn")
        self.log = log
        self.task, self.started = -1, 0.0
        self.connection, theirs = context.Pipe()
        # Not daemonic: a run may start processes of its own.
        self.process = context.Process(target=_serve, args=(theirs, runner, str(log)))
        with _one_thread_each():
            self.process.start()
        theirs.close()

    def give(self, task: int, overrides: Mapping[str, Scalar]) -> None:
        self.task, self.started = task, time.monotonic()
        # A worker that just died is noticed, and its run counted as failed, by reply().
        with suppress(BrokenPipeError):
            self.connection.send(dict(overrides))

    def reply(self) -> Reply | None:
        """Return how the task ended, or None while it goes on."""
        alive = self.process.is_alive()
        try:
            if self.connection.poll():
                return read_reply(cast(str, self.connection.recv()))
        except (EOFError, ConnectionResetError):
            alive = False
        return None if alive else self._death()

    def _death(self) -> Reply:
        self.process.join(GRACE_SECONDS)
        output = self.log.read_text(errors="replace")[-4000:].strip() if self.log.exists() else ""
        end = f"the worker process died with exit code {self.process.exitcode}"
        return Reply(error=f"{output}\n{end}".strip(), seconds=time.monotonic() - self.started)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the worker and the processes that its run started."""
        try:
            os.killpg(cast(int, self.process.pid), number)
        except ProcessLookupError:
            # Either gone, or so young that it does not lead its own group yet.
            self.process.kill()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes started within use one thread; libraries read these when first imported."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stop(workers: Sequence[_Worker], idle: Sequence[_Worker] = ()) -> None:
    """End workers: politely first, for good after a few seconds; idle ones end by themselves."""
    for worker in (*workers, *idle):
        worker.connection.close()
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    workers = [*workers, *idle]
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
        worker.process.join()


def _serve(connection: Connection, runner: str, log: str) -> None:
    """Run tasks until the sweep closes the connection: the life of a worker process."""
    # A group of its own: Ctrl-C reaches the sweep only, and the sweep stops the workers.
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(log, "ab") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    faulthandler.enable()
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            overrides = connection.recv()
            os.ftruncate(1, 0)
            connection.send(run_task(runner, overrides))


def _end_with_parent() -> None:
    """Wait for a sweep that is killed, and end with it instead of running on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def run_task(runner: str, overrides: dict[str, Scalar]) -> str:
    """Run one task; return a Reply as JSON, so that what cannot be stored fails here."""
    started = time.monotonic()
    try:
        module, _, function = runner.partition(":")
        run = getattr(importlib.import_module(module), function)  # such as `run_local`
        started = time.monotonic()
        result = run(overrides, quiet=True)
        failed = result.reason not in SUCCESSFUL_REASONS
        reply = Reply(
            reason=result.reason,
            error=f"the run ended with reason {result.reason!r}" if failed else "",
            seconds=time.monotonic() - started,
            rows=[dict(row) for row in result.rounds],
        )
        return json.dumps(asdict(reply), default=_plain)
    except (Exception, SystemExit):
        seconds = time.monotonic() - started
        return json.dumps(asdict(Reply(error=traceback.format_exc(), seconds=seconds)))


def read_reply(text: str) -> Reply:
    """Return the reply that :func:`run_task` wrote."""
    return Reply(**json.loads(text))


def _plain(value: object) -> object:
    """Turn a numpy or torch scalar into a Python number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a round's row holds {value!r}, which is not a number or a text")
