"""Data that a task has in one pool: read, spread over clients, with its noise."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .data_check import DataFacts, check_data
from .datasets import DATASETS, RawData, load_raw, rows
from .datasets.device import load_device_data
from .datasets.raw import input_range
from .datasets.storage import cache_folder
from .errors import TaskError, check_client, invalid
from .groups import GROUPS, group_of
from .noise import NOISES, NoiseSettings, Noisy, classes_after_noise
from .noise.noisy import InputRange, random_labels, untouched, wrong_clients
from .partitions import Partitions, partition, user_groups
from .problems import problem_of
from .splits import (
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
    from .problems import Problem
    from .spec import TaskSpec

_NEEDS_CLASSES = {"noise": ("closed-set", "open-set"), "group_kind": ("label-permutation",)}


class PoolData:
    """What server and clients hold of one pool, and what it shows of the task."""

    def __init__(self, spec: TaskSpec, own: Problem | None = None) -> None:
        self.spec = spec
        self.own = own
        self.lock = threading.RLock()
        self._partitions: dict[int, Partitions] = {}
        self._loaded: RawData | None = None
        self._device: RawData | None = None  # the last data that a device brought

    @cached_property
    def problem(self) -> Problem:
        """What is learned."""
        if self.own is not None:
            return self.own
        problem = self._known.problem
        assert not isinstance(problem, str)  # data that were read are already checked
        return problem

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the model."""
        return classes_after_noise(self.spec, self._classes_before_noise)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one target."""
        return tuple(self._known.y_train.shape[1:])

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

    def server_data(self) -> ServerData:
        """Return clean validation samples and the test set."""
        validation, test, _ = self._test_pool
        x, y = self._raw.x_test, self._raw.y_test
        return ServerData(self._split(x, y, validation), self._split(x, y, test))

    def client_data(self, partition_id: int, num_partitions: int) -> ClientData:
        """Return the data of one client among many, with its noise."""
        raw = self._raw
        mine = self._indices(partition_id, num_partitions)
        if self._owners_test:
            own_test, owner = self._owners_of_tests(num_partitions)
            test = self._own(raw.x_test, raw.y_test, own_test[owner == partition_id], partition_id)
        else:
            rng = generator(self.spec.seed, "client-test", partition_id)
            kept, held = hold_out(len(mine), self.spec.client_test_share, rng)
            if self.problem.has_classes:
                held = held[raw.y_train[mine[held]] < self._num_classes]
            test = self._own(raw.x_train, raw.y_train, mine[held], partition_id)
            mine = mine[kept]
        noisy = self._corrupted(mine, partition_id)
        if partition_id in wrong_clients(self.spec.noise_clients, num_partitions):
            noisy = random_labels(noisy, self._num_classes, partition_id)
        return self._client(noisy, test)

    def device_data(self, path: str) -> ClientData:
        """Return what a device brings itself."""
        classes, fault = self._classes_of_pool()
        known = self.own or self._pool_problem
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

    def class_counts(self, num_partitions: int, at_most: int) -> list[list[int]] | None:
        """Count the samples of each class at the first clients; None if users are too few."""
        labels, classes = self.problem.strata(self._raw.y_train), self._num_classes
        numbers = range(min(num_partitions, at_most))
        try:
            parts = [labels[self._indices(number, num_partitions)] for number in numbers]
        except TaskError:
            return None
        return [np.bincount(own, minlength=classes)[:classes].tolist() for own in parts]

    def client_names(self, num_partitions: int) -> list[str]:
        """Return who owns the data of each client, where the data say and clients go by it."""
        if not num_partitions or self.spec.partition != "natural" or self._raw.user_train is None:
            return []
        owners = np.unique(self._raw.user_train)
        group = user_groups(self._raw, num_partitions, owners)
        shared = [owners[group == client] for client in range(num_partitions)]
        return [
            f"{own[0]} and {len(own) - 1} more" if own[1:].size else str(own[0]) for own in shared
        ]

    def findings(self, num_partitions: int) -> list[str]:
        """Return what of the data may mislead."""
        raw, spec, problem = self._raw, self.spec, self.problem
        own_data = spec.task not in DATASETS or spec.task == "npz"
        clients: dict[str, Any] = {}
        if num_partitions and len(raw.y_train):
            natural = spec.partition == "natural"
            clients = {
                "owners": len(np.unique(raw.user_train)) if natural else 0,  # type: ignore[arg-type]
                "client_tests": self._client_tests(num_partitions),
                "tests_are_owners": self._owners_test,
                "client_test_share": spec.client_test_share,
            }
            if natural and problem.has_classes:
                clients["class_counts"] = self.class_counts(num_partitions, num_partitions) or ()
        return check_data(
            DataFacts(
                x=raw.x_train,
                targets=raw.y_train,
                kind=problem.kind,
                columns=raw.columns,
                kind_chosen=spec.kind != "auto" or self.own is not None or not own_data,
                scaled=spec.scale != "none",
                test_size=len(self._test_pool[1]),
                **clients,
            )
        )

    def _client_tests(self, num_partitions: int) -> list[int]:
        """Return how many samples each client tests on."""
        if self._owners_test:
            _, owner = self._owners_of_tests(num_partitions)
            sizes = np.bincount(owner[owner >= 0], minlength=num_partitions)
        else:
            self._indices(0, num_partitions)
            held = np.diff(self._partitions[num_partitions].offsets)
            sizes = (held * self.spec.client_test_share).astype(np.int64)
        return [int(size) for size in sizes]

    @property
    def _owners_test(self) -> bool:
        """Whether clients test on their owners' part of the test data."""
        return self.spec.partition == "natural" and self._raw.user_test is not None

    def _owners_of_tests(self, num_partitions: int) -> tuple[Indices, Indices]:
        """Return the test samples that clients share, and the client of each."""
        own_test = self._test_pool[2]
        assert self._raw.user_test is not None
        return own_test, user_groups(self._raw, num_partitions, self._raw.user_test[own_test])

    @property
    def _raw(self) -> RawData:
        with self.lock:
            if self._loaded is None:
                self._loaded = self._checked(load_raw(self.spec, self.own))
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
    def _num_classes(self) -> int:
        return self.problem.num_strata(self.num_outputs)

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
            pool = np.flatnonzero(labels < self._num_classes)
        rng = generator(self.spec.seed, "test-pool")
        first, second = stratified_split(labels[pool], self.spec.validation_share, rng)
        validation, rest = pool[first], pool[second]
        clients_own = rest[:0]
        if self._raw.user_test is not None and self._owners_test:
            owners = np.unique(self._raw.user_test, return_inverse=True)[1]
            mine, server = share_between_owner_and_server(owners[rest], rng)
            clients_own, rest = rest[mine], rest[server]
        if not len(rest):
            raise TaskError(
                f"the test pool of {len(pool)} samples leaves none for the global test set: "
                f"lower data.validation-share = {self.spec.validation_share} or give more samples"
            )
        return validation, rest, clients_own

    def _indices(self, partition_id: int, num_partitions: int) -> Indices:
        if num_partitions not in self._partitions:
            groups = self.problem.spread_by(self._raw.y_train)
            pool = replace(self._raw, y_train=groups)
            self._partitions[num_partitions] = partition(self.spec, pool, num_partitions)
        check_client(partition_id, num_partitions)
        return self._partitions[num_partitions][partition_id]

    def _corrupted(self, indices: Indices, partition_id: int) -> Noisy:
        settings = NoiseSettings(
            self.spec.noise_rate,
            self._classes_before_noise,
            lambda: self._input_range,
            self.spec.noise_removed,
        )
        x, y = self._grouped(self._raw.x_train, self._raw.y_train, indices, partition_id)
        rng = generator(self.spec.seed, "noise", partition_id)
        return NOISES[self.spec.noise](x, y, settings, rng)

    @cached_property
    def _input_range(self) -> InputRange:
        return input_range(self._raw.x_train)

    def _classes_of_pool(self) -> tuple[int, str]:
        """Return how many classes there are before noise; 0 and why if only the device knows."""
        if self.spec.num_classes or self.own is not None:
            fault = f"task = {self.spec.task!r}: the model does not end in an nn.Linear"
            return self.spec.num_classes or self._outputs_of_own_model(), fault
        try:
            return self._raw.num_classes, ""
        except TaskError as error:
            return 0, str(error)

    def _outputs_of_own_model(self) -> int:
        """Return how many outputs the model of a user's own problem has; 0 if none is seen."""
        from .models import build_model
        from .models.head import split_at_head
        from .models.own import of_problem

        own = of_problem(self.own) if self.spec.model == "auto" else None
        try:
            model = own and build_model(own, (), 1, seed=self.spec.seed)
            return split_at_head(model)[1].out_features if model else 0
        except TaskError:
            return 0

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
        count, differ = self.spec.group_count, GROUPS[self.spec.group_kind]
        own, group = self._rows(x, indices), group_of(client, count)
        return differ(own, y[indices], group, count, self._classes_before_noise)

    def _rows(self, x: Inputs, indices: Indices) -> NDArray[Any]:
        return rows(x, indices, self.problem.tokens)

    def _own(self, x: Inputs, y: NDArray[Any], indices: Indices, client: int) -> Split:
        return self._tensors(*self._grouped(x, y, indices, client))

    def _split(self, x: Inputs, y: NDArray[Any], indices: Indices) -> Split:
        return self._tensors(self._rows(x, indices), y[indices])

    def _tensors(self, x: NDArray[Any], y: NDArray[Any]) -> Split:
        inputs = torch.from_numpy(x)
        if self._backbone and not len(x):
            inputs = torch.zeros((0, *self.input_shape))
        elif self._backbone:
            from .backbones import features

            inputs = features(self._backbone, inputs, str(cache_folder(self.spec.cache_dir)))
        return Split(inputs, torch.from_numpy(y))
