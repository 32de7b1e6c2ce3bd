"""A user's own task: a problem that brings data and, optionally, a model.

``task = "module:attribute"`` names a function that returns a pool of arrays
(:mod:`core.tasks.datasets.own`), or a subclass or instance of :class:`Problem`. That has the data
of each client, or a method ``data`` that returns a pool, which the run spreads over clients.
"""

import threading
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data_check import DataFacts, check_data
from .errors import TaskError, check_client, imported, invalid, own_code
from .lazy import LazySplit
from .own_app import registered
from .problems import Problem
from .spec import APP, TaskSpec
from .splits import ClientData, Samples, ServerData, Split, generator, hold_out


def own_problem(task: str) -> Problem | None:
    """Return the problem that ``module:attribute`` names; None if it names something else."""
    if ":" not in str(task) or task.startswith("hf:"):
        return None
    if task.startswith(APP):
        return registered(task)
    found = imported("task", task)
    if isinstance(found, type) and issubclass(found, Problem):
        with own_code(f"task = {task!r}: {found.__name__}()"):
            found = found()
    return found if isinstance(found, Problem) else None


def brings_client_data(problem: Problem) -> bool:
    """Return whether a problem has the data of each client, not a pool.

    >>> class Mine(Problem):
    ...     def client_data(self, client, clients): ...
    >>> brings_client_data(Mine()), brings_client_data(Problem())
    (True, False)
    """
    return type(problem).client_data is not Problem.client_data


class OwnData:
    """What a problem's methods return, checked and brought into shape."""

    def __init__(self, problem: Problem, spec: TaskSpec) -> None:
        self.problem = self.own = problem
        self.spec, self.lock = spec, threading.RLock()
        self._device: Samples | None = None
        for field in ("noise", "group_kind"):
            if getattr(spec, field) != "none":
                allowed = f"none: task {spec.task!r} brings the data of each client itself"
                raise invalid(field, getattr(spec, field), allowed)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; empty if inputs are not one tensor."""
        x, _ = self._example
        return tuple(x.shape[1:]) if isinstance(x, Tensor) else ()

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of the inputs."""
        x, _ = self._example
        return x.dtype if isinstance(x, Tensor) else torch.float32

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one target."""
        return tuple(self._example[1].shape[1:])

    @property
    def num_outputs(self) -> int:
        """Outputs that a model needs, by the spec or from the server's targets."""
        try:
            return self.spec.num_classes or self.problem.num_outputs(self._known.y.numpy())
        except NotImplementedError:
            return 1  # only the problem's own model knows

    @property
    def _known(self) -> Samples:
        return self._device or self._server_samples

    @property
    def _example(self) -> tuple[Any, Tensor]:
        return next(iter(self._known.batches(1)))

    @cached_property
    def _server_samples(self) -> Samples:
        return self._samples(self.problem.server_data, (), needed=True)

    def server_data(self) -> ServerData:
        """Return what the server tests on, with a share set aside for validation."""
        everything = self._server_samples
        rng = generator(self.spec.seed, "test-pool")
        rest, held = hold_out(len(everything), self.spec.validation_share, rng)
        if not len(rest):
            raise TaskError(f"{self._name('server_data')} leaves no sample to test on")
        select = everything.select
        return ServerData(select(torch.from_numpy(held)), select(torch.from_numpy(rest)))

    def take(self, train: Samples) -> ClientData:
        """Return what a client brings itself, to train on; its shape is then known."""
        self._device = train
        return self._client(train, train.select(torch.arange(0)))

    def client_data(self, client: int, clients: int) -> ClientData:
        """Return what a client trains and tests on."""
        check_client(client, clients)
        train = self._samples(self.problem.client_data, (client, clients))
        if type(self.problem).client_test_data is Problem.client_test_data:
            return self._held_out(train, generator(self.spec.seed, "client-test", client))
        test = self._samples(self.problem.client_test_data, (client, clients))
        return self._client(train, test)

    def device_data(self, path: str) -> ClientData:
        """Return what a device trains and tests on."""
        if type(self.problem).device_data is Problem.device_data:
            raise TaskError(
                f"task = {self.spec.task!r}: a device with data-path = {path!r} needs a method "
                f"device_data(path) of {type(self.problem).__name__}, which it lacks"
            )
        self._device = self._samples(self.problem.device_data, (path,), needed=True)
        return self._held_out(self._device, generator(self.spec.seed, "device-test"))

    def class_counts(self, clients: int, at_most: int) -> None:
        """Return nothing: only the clients' own data would say."""

    def client_names(self, clients: int) -> list[str]:
        """Return what the problem calls its clients, if it does."""
        if type(self.problem).client_name is Problem.client_name:
            return []
        return [str(self.problem.client_name(client, clients)) for client in range(clients)]

    def findings(self, clients: int) -> list[str]:
        """Return what of the server's samples may mislead; those of clients are their own."""
        held = self._server_samples
        if not isinstance(held, Split):
            return []
        facts = DataFacts(x=held.x.numpy(), targets=held.y.numpy(), kind=self.problem.kind)
        return check_data(facts)

    def _held_out(self, train: Samples, rng: np.random.Generator) -> ClientData:
        kept, held = hold_out(len(train), self.spec.client_test_share, rng)
        test = train.select(torch.from_numpy(held))
        return self._client(train.select(torch.from_numpy(kept)) if len(held) else train, test)

    def _client(self, train: Samples, test: Samples) -> ClientData:
        classes = self.problem.has_classes and isinstance(train, Split)
        labels = self.problem.strata(train.y.numpy()) if classes else np.zeros(len(train), np.int64)
        clean = torch.ones(len(train), dtype=torch.bool)
        return ClientData(train, test, torch.from_numpy(labels), clean)

    def _samples(self, method: Any, arguments: tuple[Any, ...], needed: bool = False) -> Samples:
        """Call one of the problem's methods and take what it returns as samples."""
        name = self._name(method.__name__)
        try:
            with own_code(f"{name}{arguments}"):
                found = method(*arguments)
        except TaskError as error:
            if not isinstance(error.__cause__, NotImplementedError):
                raise
            raise TaskError(f"task = {self.spec.task!r}: {name} is missing") from error
        samples = self._taken(found, f"{name}{arguments}")
        if needed and not len(samples):
            raise TaskError(f"{name}{arguments} returned no samples")
        return samples

    def _taken(self, found: Any, origin: str) -> Samples:
        if isinstance(found, Samples):
            return found
        if isinstance(found, tuple | list) and len(found) == 2 and all(map(_is_array, found)):
            x, y = (torch.as_tensor(np.asarray(each)) for each in found)
            targets = self.problem.checked_targets(y.numpy(), len(x), f"{origin}: targets")
            x = x if x.dtype in (torch.int64, torch.float32) else x.to(self._dtype(x))
            return Split(x, torch.from_numpy(targets))
        if hasattr(found, "__getitem__") or hasattr(found, "__iter__"):
            return LazySplit(found, origin, self.problem.collate, self.problem.workers)
        raise TaskError(
            f"{origin} returned {type(found).__name__}; expected a pair of arrays (inputs, "
            "targets), or a torch Dataset of such pairs"
        )

    def _dtype(self, x: Tensor) -> torch.dtype:
        whole = not x.is_floating_point() and (self.problem.tokens or x.dtype != torch.uint8)
        return torch.int64 if whole else torch.float32

    def _name(self, method: str) -> str:
        return f"{type(self.problem).__name__}.{method}"


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor)
