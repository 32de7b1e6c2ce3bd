"""A task: a problem, data for the server and every client, and the model that learns from it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .datasets import DATASETS, RawData, load_raw, rows
from .datasets.device import load_device_data
from .datasets.raw import input_range
from .datasets.storage import cache_folder
from .errors import TaskError, invalid
from .groups import GROUPS, affine_shift, group_of
from .metrics import CLASS_RECALL, Metric, of_classes, resolved
from .noise import NOISES, NoiseSettings, Noisy, classes_after_noise
from .noise.attribute import parse_kinds
from .noise.noisy import InputRange, untouched
from .noise.random_labels import random_labels, wrong_clients
from .own_task import OwnData, brings_client_data, own_problem
from .partitions import PARTITIONERS, Partitions, partition, user_groups
from .problems import KINDS, problem_of
from .scaling import scaled_client, scaled_server, scaling_of
from .spec import TaskSpec, check_spec
from .splits import (
    ClientCache,
    ClientData,
    Indices,
    Samples,
    ServerData,
    Split,
    generator,
    hold_out,
    share_between_owner_and_server,
    stratified_split,
)

if TYPE_CHECKING:
    from .datasets.raw import Inputs
    from .problems import Problem

_MOST_CLASSES = 100  # that have a metric each
_NEEDS_CLASSES = {"noise": ("closed-set", "open-set"), "group_kind": ("label-permutation",)}

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
        self._partitions: dict[int, Partitions] = {}
        self._loaded: RawData | None = None
        self._device: RawData | None = None  # the last data that a device brought
        self.scaling = scaling_of(spec.scale)

    def unscaled(self) -> Task:
        """Return the same task with inputs as they were read."""
        return self if self.scaling is None else load_task(replace(self.spec, scale="none"))

    @cached_property
    def problem(self) -> Problem:
        """What is learned."""
        if self._own_problem is not None:
            return self._own_problem
        problem = self._known.problem
        assert not isinstance(problem, str)  # data that were read are already checked
        return problem

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
        return classes_after_noise(self.spec, self._classes_before_noise)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one target."""
        return tuple(self._known.y_train.shape[1:])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the model's output for one sample."""
        return self.problem.output_shape(self.num_outputs, self.target_shape)

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of the inputs."""
        return torch.int64 if self.problem.tokens else torch.float32

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input of the model, without the sample axis."""
        if self._backbone:
            from .backbones import feature_size

            return (feature_size(self._backbone),)
        return self._known.input_shape

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
        return scaled_server(self._server_data, self.scaling)

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
            return scaled_client(self._make_client(*key), self.scaling)

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
                lambda _: scaled_client(self._make_device(path), self.scaling),
            )

    def class_counts(self, num_partitions: int, at_most: int) -> list[list[int]] | None:
        """Count the samples of each class at the first clients, before noise.

        None if the pool does not say: each client brings its own data, or users are too few.
        """
        with self._lock:
            labels = self.problem.strata(self._raw.y_train)
            try:
                parts = [
                    labels[self._indices(number, num_partitions)]
                    for number in range(min(num_partitions, at_most))
                ]
            except TaskError:
                return None
        classes = self.num_classes
        return [np.bincount(own, minlength=classes)[:classes].tolist() for own in parts]

    @property
    def _raw(self) -> RawData:
        with self._lock:
            if self._loaded is None:
                same = self.unscaled()  # two tasks with the same data in memory would be too much
                self._loaded = (
                    self._checked(load_raw(self.spec, self._own_problem))
                    if same is self
                    else same._raw
                )
            return self._loaded

    def _checked(self, raw: RawData) -> RawData:
        problem = raw.problem
        assert not isinstance(problem, str)
        for field, values in _NEEDS_CLASSES.items():
            if not problem.has_classes and getattr(self.spec, field) in values:
                allowed = f"none: task {self.spec.task!r} has no classes ({problem.kind})"
                raise invalid(field, getattr(self.spec, field), allowed)
        if self.spec.noise_clients and not problem.has_classes:
            raise invalid("noise_clients", self.spec.noise_clients, "0: there are no classes")
        return raw

    @property
    def _known(self) -> RawData:
        """The pool, or what a device has brought: it may hold nothing but its own file."""
        return self._device or self._raw

    @property
    def _classes_before_noise(self) -> int:
        return self.spec.num_classes or self._known.num_classes

    @property
    def _backbone(self) -> str:
        prefix, _, name = self.spec.model.partition(":")
        return name if prefix == "frozen" else ""

    @cached_property
    def _test_pool(self) -> tuple[Indices, Indices, Indices]:
        """Positions in the test pool: the server's validation, its test set, clients' own."""
        labels = self.problem.spread_by(self._raw.y_test)
        pool = np.arange(len(labels))
        if self.problem.has_classes:  # noise may have left fewer classes to learn
            pool = np.flatnonzero(labels < self.num_classes)
        rng = generator(self.spec.seed, "test-pool")
        first, second = stratified_split(labels[pool], self.spec.validation_share, rng)
        validation, rest = pool[first], pool[second]
        clients_own = rest[:0]
        if self.spec.partition == "natural" and self._raw.user_test is not None:
            owners = np.unique(self._raw.user_test, return_inverse=True)[1]
            mine, server = share_between_owner_and_server(owners[rest], rng)
            clients_own, rest = rest[mine], rest[server]
        if not len(rest):
            raise TaskError(
                f"the test pool of {len(pool)} samples leaves none for the global test set: "
                f"lower data.validation-share = {self.spec.validation_share} or give more samples"
            )
        return validation, rest, clients_own

    @cached_property
    def _server_data(self) -> ServerData:
        validation, test, _ = self._test_pool
        x, y = self._raw.x_test, self._raw.y_test
        return ServerData(self._split(x, y, validation), self._split(x, y, test))

    def _make_client(self, partition_id: int, num_partitions: int) -> ClientData:
        raw = self._raw
        mine = self._indices(partition_id, num_partitions)
        if self.spec.partition == "natural" and raw.user_test is not None:
            own_test = self._test_pool[2]
            owner = user_groups(raw, num_partitions, raw.user_test[own_test])
            test = self._own(raw.x_test, raw.y_test, own_test[owner == partition_id], partition_id)
        else:
            rng = generator(self.spec.seed, "client-test", partition_id)
            kept, held = hold_out(len(mine), self.spec.client_test_share, rng)
            if self.problem.has_classes:
                held = held[raw.y_train[mine[held]] < self.num_classes]
            test = self._own(raw.x_train, raw.y_train, mine[held], partition_id)
            mine = mine[kept]
        noisy = self._corrupted(mine, partition_id)
        if partition_id in wrong_clients(self.spec.noise_clients, num_partitions):
            noisy = random_labels(noisy, self.num_classes, partition_id)
        return self._client(noisy, test)

    def _indices(self, partition_id: int, num_partitions: int) -> Indices:
        if num_partitions not in self._partitions:
            groups = self.problem.spread_by(self._raw.y_train)
            pool = replace(self._raw, y_train=groups)
            self._partitions[num_partitions] = partition(self.spec, pool, num_partitions)
        if not 0 <= partition_id < num_partitions:
            allowed = f"0 to {num_partitions - 1}, as num_partitions = {num_partitions}"
            raise invalid("partition_id", partition_id, allowed)
        return self._partitions[num_partitions][partition_id]

    def _corrupted(self, indices: Indices, partition_id: int) -> Noisy:
        settings = NoiseSettings(
            self.spec.noise_rate,
            self._classes_before_noise,
            parse_kinds(self.spec.noise_kinds),
            self.spec.noise_severity,
            lambda: self._input_range,
            self.spec.noise_removed,
        )
        x, y = self._grouped(self._raw.x_train, self._raw.y_train, indices, partition_id)
        rng = generator(self.spec.seed, "noise", partition_id)
        return NOISES[self.spec.noise](x, y, settings, rng)

    @cached_property
    def _input_range(self) -> InputRange:
        return input_range(self._raw.x_train)

    def _make_device(self, path: str) -> ClientData:
        classes, fault = self._classes_of_pool()
        known = self._own_problem or self._pool_problem
        raw = load_device_data(path, self.spec, classes, known, fault)
        if self._loaded is not None and raw.input_shape != self._loaded.input_shape:
            raise TaskError(
                f"{path}: samples have shape {raw.input_shape}, "
                f"the task needs {self._loaded.input_shape}"
            )
        self._device = self._checked(raw)
        everything = np.arange(len(raw.y_train))
        if len(raw.y_test):
            mine, test = everything, self._split(raw.x_test, raw.y_test, np.arange(len(raw.y_test)))
        else:
            rng = generator(self.spec.seed, "device-test")
            mine, held = hold_out(len(everything), self.spec.client_test_share, rng)
            test = self._split(raw.x_train, raw.y_train, held)
        return self._client(untouched(self._rows(raw.x_train, mine), raw.y_train[mine]), test)

    def _classes_of_pool(self) -> tuple[int, str]:
        """Return how many classes there are before noise; 0 and why if only the device knows."""
        if self.spec.num_classes or self._own_problem is not None:
            return self.spec.num_classes, "the task's own problem does not say"
        try:
            return self._raw.num_classes, ""
        except TaskError as error:
            return 0, str(error)

    @property
    def _pool_problem(self) -> Problem | None:
        """The problem as far as it is known without the device's own data."""
        if self.spec.kind != "auto":
            return problem_of(self.spec.kind)
        problem = None if self._loaded is None else self._loaded.problem
        return None if isinstance(problem, str) else problem

    def _client(self, noisy: Noisy, test: Split) -> ClientData:
        return ClientData(
            train=self._tensors(noisy.x, noisy.y),
            test=test,
            true_labels=torch.from_numpy(self.problem.strata(noisy.true_labels)),
            clean=torch.from_numpy(noisy.clean),
        )

    def _grouped(
        self, x: Inputs, y: NDArray[Any], indices: Indices, client: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return samples as the client's planted group has them."""
        count = self.spec.group_count
        differ = GROUPS[self.spec.group_kind]
        group, own = group_of(client, count), self._rows(x, indices)
        if self.spec.group_kind == "affine-shift":
            own = affine_shift(self.spec.group_strength, own, group)
        return differ(own, y[indices], group, count, self._classes_before_noise)

    def _rows(self, x: Inputs, indices: Indices) -> NDArray[Any]:
        return rows(x, indices, self.problem.tokens)

    def _own(self, x: Inputs, y: NDArray[Any], indices: Indices, client: int) -> Split:
        return self._tensors(*self._grouped(x, y, indices, client))

    def _split(self, x: Inputs, y: NDArray[Any], indices: Indices) -> Split:
        return self._tensors(self._rows(x, indices), y[indices])

    def _tensors(self, x: NDArray[Any], y: NDArray[Any]) -> Split:
        inputs = torch.from_numpy(x)
        if self._backbone:
            inputs = self._features(inputs)
        return Split(inputs, torch.from_numpy(y))

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        from .backbones import features

        if not len(inputs):
            return torch.zeros((0, *self.input_shape))
        return features(self._backbone, inputs, str(cache_folder(self.spec.cache_dir)))


def _last_change(path: str) -> tuple[int, int]:
    """Return when a file, or what a folder holds, was last changed, and its size."""
    place = Path(path).expanduser()
    files = [place, *(sorted(place.iterdir()) if place.is_dir() else [])]
    known = [file.stat() for file in files if file.exists()]
    return max((s.st_mtime_ns for s in known), default=0), sum(s.st_size for s in known)


class OwnTask(Task):
    """A task whose problem brings the data of each client, instead of a pool to spread."""

    def __init__(self, spec: TaskSpec, own: Problem) -> None:
        super().__init__(spec, own)
        self._source = OwnData(own, spec)

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the model."""
        return self.spec.num_classes or self._source.num_outputs

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self._source.input_shape

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one target."""
        return self._source.target_shape

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of the inputs."""
        return self._source.input_dtype

    def class_counts(self, num_partitions: int, at_most: int) -> list[list[int]] | None:
        """Return None: only the clients' own data would say."""
        return None

    @cached_property
    def _server_data(self) -> ServerData:
        return self._source.server_data()

    def _make_client(self, partition_id: int, num_partitions: int) -> ClientData:
        if not 0 <= partition_id < num_partitions:
            allowed = f"0 to {num_partitions - 1}, as num_partitions = {num_partitions}"
            raise invalid("partition_id", partition_id, allowed)
        return self._source.client_data(partition_id, num_partitions)

    def _make_device(self, path: str) -> ClientData:
        return self._source.device_data(path)

    def take(self, train: Samples) -> ClientData:
        """Return what a client brings itself as its data."""
        return self._source.take(train)
