"""A task: a problem, data for the server and every client, and the model that learns from it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .datasets import DATASETS
from .errors import TaskError
from .groups import GROUPS
from .metrics import CLASS_RECALL, Metric, of_classes, resolved
from .noise import NOISES
from .noise.attribute import parse_kinds
from .own_task import OwnData, brings_client_data, own_problem
from .partitions import PARTITIONERS
from .pool import PoolData
from .problems import KINDS
from .scaling import scaled_client, scaled_server, scaling_of
from .spec import TaskSpec, check_spec
from .splits import ClientCache, ClientData, Samples, ServerData

if TYPE_CHECKING:
    from .problems import Problem

_MOST_CLASSES = 100  # that have a metric each

CLIENT_CACHE_BYTES = 2**30
"""Memory that the data of recently used clients may take, per task."""


@lru_cache(maxsize=4)
def load_task(spec: TaskSpec) -> Task:
    """Task of a spec; the same object for the same spec within a process.

    Nothing is read before something is asked of the task.

    Raises
    ------
    TaskError
        If a setting is of the wrong type, out of range or unknown.

    Examples
    --------
    >>> task = load_task(TaskSpec(task="synthetic"))
    >>> task.input_shape, task.num_classes
    ((60,), 10)
    >>> load_task(TaskSpec(noise_rate=2.0))
    Traceback (most recent call last):
        ...
    forager...TaskError: corruption.rate = 2.0 is not allowed: use a number in [0, 1]
    """
    names: dict[str, Collection[str]] = {
        "partition": PARTITIONERS,
        "noise": NOISES,
        "group_kind": GROUPS,
        "kind": ["auto", *KINDS],
    }
    if ":" not in str(spec.task):
        names["task"] = [*DATASETS, "hf:<name>", "module:attribute"]
    check_spec(spec, names)
    parse_kinds(spec.noise_kinds)
    if spec.metrics:
        resolved(_names(spec.metrics))
    own = own_problem(spec.task)
    if own is not None and brings_client_data(own):
        return OwnTask(spec, own)
    return Task(spec, own)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class Task:
    """Data and model of a run; made by `load_task`.

    Everything is computed when first asked for, from the spec alone, so that server and clients
    that never meet agree on it. May be used from several threads.

    Parameters
    ----------
    spec : TaskSpec
        Checked settings.
    own : Problem, optional
        The user's own problem, with a pool of data.
    """

    def __init__(self, spec: TaskSpec, own: Problem | None = None) -> None:
        self.spec = spec
        self._own_problem = own
        self._lock = threading.RLock()
        self._clients = ClientCache(CLIENT_CACHE_BYTES)
        self.scaling = scaling_of(spec.scale)
        self._data = self._opened()

    def _opened(self) -> PoolData | OwnData:
        # Two tasks with the same data in memory would be too much.
        same = self.unscaled()
        return PoolData(self.spec, self._own_problem) if same is self else same._data

    def unscaled(self) -> Task:
        """Return the same task with inputs as they were read."""
        return self if self.scaling is None else load_task(replace(self.spec, scale="none"))

    @property
    def problem(self) -> Problem:
        """What is learned."""
        return self._data.problem

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """What models are judged by; the first decides."""
        named = _names(self.spec.metrics)
        own = {m.name: m for m in self.problem.metrics if isinstance(m, Metric)}
        wanted = [own.get(name, name) for name in named] if named else self.problem.metrics
        key = "metrics" if named else f"{type(self.problem).__name__}.metrics"
        found = resolved(wanted, key)
        if CLASS_RECALL not in wanted:
            return found
        if not self.problem.has_classes or not 2 <= self.num_classes <= _MOST_CLASSES:
            raise TaskError(
                f"{key}: {CLASS_RECALL} needs 2 to {_MOST_CLASSES} classes; task "
                f"{self.spec.task!r} is {self.problem.kind} with {self.num_classes}"
            )
        return (*found, *of_classes(self.num_classes))

    @property
    def num_classes(self) -> int:
        """Number of classes; where a sample has no class of its own, of strata."""
        return self.problem.num_strata(self.num_outputs)

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the model."""
        return self._data.num_outputs

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one target."""
        return self._data.target_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the model's output for one sample."""
        return self.problem.output_shape(self.num_outputs, self.target_shape)

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of the inputs."""
        return self._data.input_dtype

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input of the model, without the sample axis."""
        return self._data.input_shape

    def build_model(self, seed: int | None = None) -> torch.nn.Module:
        """Build a fresh model; its initial weights are seeded, by the task's seed by default."""
        from .models import build_model
        from .models.own import of_problem

        seed = self.spec.seed if seed is None else seed
        own = of_problem(self._own_problem) if self.spec.model == "auto" else None
        if own is not None:
            return build_model(own, (), 1, seed=seed, projection=self.spec.projection)
        return build_model(
            self.problem.default_model if self.spec.model == "auto" else self.spec.model,
            self.input_shape,
            self.num_outputs,
            seed=seed,
            hidden=self.spec.hidden,
            output_shape=self.output_shape,
            tokens=self.problem.tokens,
            projection=self.spec.projection,
        )

    @cached_property
    def head(self) -> str:
        """Dotted name of the model's final linear layer."""
        from .models import linear_head

        return linear_head(self.build_model())

    def server_data(self) -> ServerData:
        """Clean validation samples and the test set; no client holds any of them."""
        with self._lock:
            return self._scaled_server_data

    @cached_property
    def _scaled_server_data(self) -> ServerData:
        return scaled_server(self._data.server_data(), self.scaling)

    def client_data(self, partition_id: int, num_partitions: int) -> ClientData:
        """Give the data of one client among many, with its noise.

        Parameters
        ----------
        partition_id : int
            Number of the client, from 0.
        num_partitions : int
            Number of clients that the training pool is spread over.

        Raises
        ------
        TaskError
            If there is no such client or the pool cannot be spread so widely.
        """
        return self.all_client_data([partition_id], num_partitions)[0]

    def all_client_data(self, partitions: Iterable[int], num_partitions: int) -> list[ClientData]:
        """Give the data of several clients, as :meth:`client_data` does."""

        def make(key: tuple[int, int]) -> ClientData:
            return scaled_client(self._data.client_data(*key), self.scaling)

        with self._lock:
            return [self._clients.get((i, num_partitions), make) for i in partitions]

    def device_data(self, path: str) -> ClientData:
        """Read data that a device brings itself, taken as it is: no noise is added.

        Parameters
        ----------
        path : str
            An ``.npz`` file with ``x_train y_train``, and ``x_test y_test`` if it has test data,
            or a folder with one such file; or a table or folder that ``hf:`` tasks read. Without
            test data, the task's client test share of the training samples is held out. Data that
            have changed since the last call are read again.

        Raises
        ------
        TaskError
            If the file is damaged or does not fit the task.
        """
        with self._lock:
            return self._clients.get(
                (path, _last_change(path)),
                lambda _: scaled_client(self._data.device_data(path), self.scaling),
            )

    def class_counts(self, num_partitions: int, at_most: int) -> list[list[int]] | None:
        """Count the samples of each class at the first clients, before noise.

        None if the pool does not say: each client brings its own data, or users are too few.
        """
        with self._lock:
            return self._data.class_counts(num_partitions, at_most)


def _last_change(path: str) -> tuple[int, int]:
    """Return when a file, or what a folder holds, was last changed, and its size."""
    place = Path(path).expanduser()
    files = [place, *(sorted(place.iterdir()) if place.is_dir() else [])]
    known = [file.stat() for file in files if file.exists()]
    return max((s.st_mtime_ns for s in known), default=0), sum(s.st_size for s in known)


class OwnTask(Task):
    """A task whose problem brings the data of each client, instead of a pool to spread."""

    _data: OwnData

    def _opened(self) -> OwnData:
        assert self._own_problem is not None
        return OwnData(self._own_problem, self.spec)

    def take(self, train: Samples) -> ClientData:
        """Return what a client brings itself as its data."""
        return self._data.take(train)
