"""Runs on a Ray cluster, whose machines need the same packages and this project at one path."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .records import Scalar, SweepError
from .workers import THREAD_VARIABLES, Reply, read_reply, run_task


class ClusterPool:
    """Does what :class:`~.workers.WorkerPool` does, on a Ray cluster."""

    def __init__(self, address: str, runner: str, processes: int | None, scratch: Path) -> None:
        self.runner, self.scratch = runner, scratch
        self._ray = _connected(address)
        self.processes = processes or int(self._ray.cluster_resources().get("CPU", 1))
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_run_there)
        self._running: dict[Any, tuple[int, float]] = {}

    def __enter__(self) -> ClusterPool:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._running:
            self._ray.cancel(run, force=True)
        self._ray.shutdown()

    def run(self, tasks: Sequence[Mapping[str, Scalar]]) -> Generator[tuple[int, Reply]]:
        """Run every task on one of the machines; see :meth:`WorkerPool.run`."""
        queue = deque(enumerate(tasks))
        while queue or self._running:
            while queue and len(self._running) < self.processes:
                position, task = queue.popleft()
                leave = not Path(str(task["output-dir"])).is_relative_to(self.scratch)
                run = self._remote.remote(self.runner, dict(task), leave)
                self._running[run] = (position, time.monotonic())
            done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
            for run in done:
                position, started = self._running.pop(run)
                yield position, self._reply(run, time.monotonic() - started)

    def _reply(self, run: Any, seconds: float) -> Reply:
        try:
            return read_reply(self._ray.get(run))
        except self._ray.exceptions.RayError as error:
            lost = f"the run was lost with its worker: {type(error).__name__}: {error}"
            return Reply(error=lost, seconds=seconds)


def cluster_address(given: str | None) -> str:
    """Return the address given, else ``RAY_ADDRESS``; empty without a cluster."""
    return os.environ.get("RAY_ADDRESS", "") if given is None else given


def _connected(address: str) -> Any:
    """Return Ray's module, connected to a cluster whose workers find the same modules."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise SweepError(
            f"cluster: {address!r} needs Ray, which is not installed; "
            "install this project with its extra 'simulation'"
        ) from None
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = dict.fromkeys(THREAD_VARIABLES, "1") | {"PYTHONPATH": paths}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SweepError(
            f"cluster: {address!r} cannot be reached ({error}); "
            "give the address of a running Ray cluster, or unset RAY_ADDRESS"
        ) from error
    return ray


def _run_there(runner: str, overrides: dict[str, Scalar], leave: bool) -> str:
    """Run one task on the machine that this is called on."""
    try:
        return run_task(runner, overrides)
    finally:
        if not leave:
            shutil.rmtree(str(overrides["output-dir"]), ignore_errors=True)
