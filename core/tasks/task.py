"""A task: data for the server and every client, and the model that learns from it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from .datasets import DATASETS, RawData, load_raw, rows
from .datasets.npz import load_device_file
from .datasets.raw import input_range
from .datasets.storage import cache_folder
from .errors import TaskError, invalid
from .groups import GROUPS, group_of
from .noise import NOISES, NoiseSettings, Noisy, classes_after_noise
from .noise.attribute import parse_kinds
from .noise.noisy import InputRange, untouched
from .partitions import PARTITIONERS, Partitions, partition, user_groups
from .spec import TaskSpec, check_spec
from .splits import (
    ClientCache,
    ClientData,
    Indices,
    ServerData,
    Split,
    generator,
    hold_out,
    share_between_owner_and_server,
    stratified_split,
)

if TYPE_CHECKING:
    from .datasets.raw import Inputs

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
    }
    if ":" not in str(spec.task):
        names["task"] = DATASETS
    check_spec(spec, names)
    parse_kinds(spec.noise_kinds)
    return Task(spec)


class Task:
    """Data and model of a run; made by `load_task`.

    Everything is computed when first asked for, from the spec alone, so that server and clients
    that never meet agree on it. May be used from several threads.

    Parameters
    ----------
    spec : TaskSpec
        Checked settings.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self._lock = threading.RLock()
        self._clients = ClientCache(CLIENT_CACHE_BYTES)
        self._partitions: dict[int, Partitions] = {}
        self._loaded: RawData | None = None
        self._device_shape: tuple[int, ...] | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes that the model tells apart."""
        return classes_after_noise(self.spec, self._classes_before_noise)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input of the model, without the sample axis."""
        if self._backbone:
            from .backbones import feature_size

            return (feature_size(self._backbone),)
        return self._device_shape or self._raw.input_shape

    def build_model(self) -> torch.nn.Module:
        """Build a fresh model with the task's seeded initial weights."""
        from .models import build_model

        return build_model(
            self.spec.model,
            self.input_shape,
            self.num_classes,
            seed=self.spec.seed,
            hidden=self.spec.hidden,
        )

    @cached_property
    def head(self) -> str:
        """Dotted name of the model's final linear layer."""
        from .models import linear_head

        return linear_head(self.build_model())

    def server_data(self) -> ServerData:
        """Clean validation samples and the test set; no client holds any of them."""
        with self._lock:
            return self._server_data

    def client_data(self, partition_id: int, num_partitions: int) -> ClientData:
        """Give the data of one client among many, with the noise that befell it.

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
        key = (partition_id, num_partitions)
        with self._lock:
            return self._clients.get(key, lambda: self._make_client(*key))

    def device_data(self, path: str) -> ClientData:
        """Read data that a device brings itself, taken as it is: no noise is added.

        Parameters
        ----------
        path : str
            An ``.npz`` file with ``x_train y_train``, and ``x_test y_test`` if it has test data,
            or a folder with one such file. Without test data, the task's client test share of
            the training samples is held out.

        Raises
        ------
        TaskError
            If the file is damaged or does not fit the task.
        """
        with self._lock:
            return self._clients.get(path, lambda: self._make_device(path))

    @property
    def _raw(self) -> RawData:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_raw(self.spec)
            return self._loaded

    @property
    def _classes_before_noise(self) -> int:
        # A device may hold nothing but its own file: do not read the pool if it is not needed.
        return self.spec.num_classes or self._raw.num_classes

    @property
    def _backbone(self) -> str:
        prefix, _, name = self.spec.model.partition(":")
        return name if prefix == "frozen" else ""

    @cached_property
    def _test_pool(self) -> tuple[Indices, Indices, Indices]:
        """Positions in the test pool: the server's validation, its test set, clients' own."""
        labels = self._raw.y_test
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
            held = held[raw.y_train[mine[held]] < self.num_classes]
            test = self._own(raw.x_train, raw.y_train, mine[held], partition_id)
            mine = mine[kept]
        return self._client(self._corrupted(mine, partition_id), test)

    def _indices(self, partition_id: int, num_partitions: int) -> Indices:
        if num_partitions not in self._partitions:
            self._partitions[num_partitions] = partition(self.spec, self._raw, num_partitions)
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
        )
        x, y = self._grouped(self._raw.x_train, self._raw.y_train, indices, partition_id)
        rng = generator(self.spec.seed, "noise", partition_id)
        return NOISES[self.spec.noise](x, y, settings, rng)

    @cached_property
    def _input_range(self) -> InputRange:
        return input_range(self._raw.x_train)

    def _make_device(self, path: str) -> ClientData:
        try:
            num_classes = self.num_classes
        except TaskError as error:
            raise TaskError(
                f"{error}; with only the device's own data at hand, set data.num-classes"
            ) from error
        raw = load_device_file(path, num_classes)
        expected = self._loaded.input_shape if self._loaded else raw.input_shape
        if raw.input_shape != expected:
            raise TaskError(
                f"{path}: samples have shape {raw.input_shape}, the task needs {expected}"
            )
        self._device_shape = raw.input_shape
        everything = np.arange(len(raw.y_train))
        if len(raw.y_test):
            mine, test = everything, self._split(raw.x_test, raw.y_test, np.arange(len(raw.y_test)))
        else:
            rng = generator(self.spec.seed, "device-test")
            mine, held = hold_out(len(everything), self.spec.client_test_share, rng)
            test = self._split(raw.x_train, raw.y_train, held)
        return self._client(untouched(rows(raw.x_train, mine), raw.y_train[mine]), test)

    def _client(self, noisy: Noisy, test: Split) -> ClientData:
        return ClientData(
            train=self._tensors(noisy.x, noisy.y),
            test=test,
            true_labels=torch.from_numpy(noisy.true_labels),
            clean=torch.from_numpy(noisy.clean),
        )

    def _grouped(
        self, x: Inputs, y: NDArray[np.int64], indices: Indices, client: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return samples as the client's planted group has them."""
        count = self.spec.group_count
        differ = GROUPS[self.spec.group_kind]
        group = group_of(client, count)
        return differ(rows(x, indices), y[indices], group, count, self._classes_before_noise)

    def _own(self, x: Inputs, y: NDArray[np.int64], indices: Indices, client: int) -> Split:
        return self._tensors(*self._grouped(x, y, indices, client))

    def _split(self, x: Inputs, y: NDArray[np.int64], indices: Indices) -> Split:
        return self._tensors(rows(x, indices), y[indices])

    def _tensors(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> Split:
        inputs = torch.from_numpy(x)
        if self._backbone:
            inputs = self._features(inputs)
        return Split(inputs, torch.from_numpy(y))

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        from .backbones import features

        if not len(inputs):
            return torch.zeros((0, *self.input_shape))
        return features(self._backbone, inputs, str(cache_folder(self.spec.cache_dir)))
