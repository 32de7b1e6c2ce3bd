"""A task: a problem, data for the server and every client, and the model that learns from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .datasets import DATASETS
from .errors import TaskError
from .groups import GROUPS
from .metrics import CLASS_RECALL, Metric, check_fitting, of_classes, resolved
from .noise import NOISES
from .own_task import OwnData, brings_client_data, own_problem
from .partitions import PARTITIONERS
from .pool import PoolData
from .problems import KINDS
from .scaling import scaled, scaling_of
from .spec import TaskSpec, check_spec
from .splits import ClientCache, ClientData, Samples, ServerData

if TYPE_CHECKING:
    from .problems import Problem

_MOST_CLASSES = 100  # that have a metric each

CLIENT_CACHE_BYTES = 2**30
"""Memory that the data of recently used clients may take, per task."""


@lru_cache(maxsize=4)
def load_task(spec: TaskSpec) -> Task:
    """Task of a spec, read lazily; the same object for the same spec within a process."""
    names: dict[str, Collection[str]] = {
        "partition": PARTITIONERS,
        "noise": NOISES,
        "group_kind": GROUPS,
        "kind": ["auto", *KINDS],
    }
    if ":" not in str(spec.task):
        names["task"] = [*DATASETS, "hf:<name>", "module:attribute"]
    check_spec(spec, names)
    if spec.metrics:
        resolved(_names(spec.metrics))
    if scaling_of(spec.scale) is not None:  # two tasks with the same data would take twice as much
        return Task(spec, load_task(replace(spec, scale="none"))._data)
    own = own_problem(spec.task)
    if own is not None and brings_client_data(own):
        return Task(spec, OwnData(own, spec))
    return Task(spec, PoolData(spec, own))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class Task:
    """Data and model of a run, made by `load_task`: lazy, thread-safe, given by the spec alone."""

    def __init__(self, spec: TaskSpec, data: PoolData | OwnData) -> None:
        self.spec, self._data = spec, data
        self._clients = ClientCache(CLIENT_CACHE_BYTES)
        self.scaling = scaling_of(spec.scale)

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
        check_fitting(found, self.problem, f"task {self.spec.task!r}", key)
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
        own = of_problem(self._data.own) if self.spec.model == "auto" else None
        if own is not None:
            model = build_model(own, (), 1, seed=seed, projection=self.spec.projection)
        else:
            model = build_model(
                self.problem.default_model if self.spec.model == "auto" else self.spec.model,
                self.input_shape,
                self.num_outputs,
                seed=seed,
                hidden=self.spec.hidden,
                output_shape=self.output_shape,
                tokens=self.problem.tokens,
                projection=self.spec.projection,
            )
        self.problem.heed(model)
        return model

    @cached_property
    def head(self) -> str:
        """Dotted name of the model's final linear layer."""
        from .models import linear_head

        return linear_head(self.build_model())

    def server_data(self) -> ServerData:
        """Clean validation samples and the test set; no client holds any of them."""
        with self._data.lock:
            return self._scaled_server_data

    @cached_property
    def _scaled_server_data(self) -> ServerData:
        held = self._data.server_data()
        return ServerData(self._scaled(held.validation), self._scaled(held.test))

    def _scaled(self, samples: Samples) -> Samples:
        return samples if self.scaling is None else scaled(samples, self.scaling)

    def _scaled_client(self, data: ClientData) -> ClientData:
        return replace(data, train=self._scaled(data.train), test=self._scaled(data.test))

    def client_data(self, partition_id: int, num_partitions: int) -> ClientData:
        """Give the data of one client among many, with its noise; clients count from 0."""
        return self.all_client_data([partition_id], num_partitions)[0]

    def all_client_data(self, partitions: Iterable[int], num_partitions: int) -> list[ClientData]:
        """Give the data of several clients, as :meth:`client_data` does."""

        def make(key: tuple[int, int]) -> ClientData:
            return self._scaled_client(self._data.client_data(*key))

        with self._data.lock:
            return [self._clients.get((i, num_partitions), make) for i in partitions]

    def device_data(self, path: str) -> ClientData:
        """Read a device's own data (``.npz`` or as ``hf:``), without noise; again if changed."""
        with self._data.lock:
            return self._clients.get(
                (path, _last_change(path)),
                lambda _: self._scaled_client(self._data.device_data(path)),
            )

    def take(self, train: Samples) -> ClientData:
        """Return what a client of an app that is not ours brings as its data."""
        assert isinstance(self._data, OwnData)
        return self._data.take(train)

    def class_counts(self, num_partitions: int, at_most: int) -> list[list[int]] | None:
        """Count the samples of each class at the first clients, before noise; None if unknown."""
        with self._data.lock:
            return self._data.class_counts(num_partitions, at_most)

    def client_names(self, num_partitions: int) -> list[str]:
        """Return who owns the data of each client; nothing where the data do not say."""
        with self._data.lock:
            return self._data.client_names(num_partitions)

    def findings(self, num_partitions: int) -> list[str]:
        """Return what of the data may mislead; with 0 clients, of the server's own samples only."""
        with self._data.lock:
            return self._data.findings(num_partitions)


def _last_change(path: str) -> tuple[int, int]:
    """Return when a file, or what a folder holds, was last changed, and its size."""
    place = Path(path).expanduser()
    files = [place, *(sorted(place.iterdir()) if place.is_dir() else [])]
    known = [file.stat() for file in files if file.exists()]
    return max((s.st_mtime_ns for s in known), default=0), sum(s.st_size for s in known)
