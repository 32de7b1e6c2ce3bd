"""The local loop, for one client or for all clients of a round that share a process."""

import copy
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import local as thread_local
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from ..tasks import Split
from .batches import UNUSED, batch_plans
from .job import Job, Outcome
from .objectives.plain import Plain
from .stack import can_stack, sgd_, train_stack
from .train_settings import TrainSettings

_log = logging.getLogger("forager")
_STACK_BYTES = 64 * 2**20  # data and parameters that one stack may hold
_RANDOM_LAYERS = (nn.modules.dropout._DropoutNd,)


class Trainer:
    """Trains jobs of one model in the fastest way that gives the same result.

    Parameters
    ----------
    model : nn.Module
        The architecture; its weights are overwritten by those of the jobs.
    mode : str (default: "auto")
        "stack" trains all jobs in one batched computation (chains of linear layers), "threads" one
        job a core, "serial" one after the other; "auto" takes the first of these that the model
        allows.
    threads : int (default: 0)
        Threads to use, 0 for as many as there are cores.
    """

    def __init__(self, model: nn.Module, mode: str = "auto", threads: int = 0) -> None:
        self.model = model
        self.threads = threads or len(os.sched_getaffinity(0))
        self.mode = self._possible(mode)
        self._own = thread_local()
        self._pool: ThreadPoolExecutor | None = None

    def _possible(self, mode: str) -> str:
        stackable = can_stack(self.model)
        # Dropout draws from torch's one global generator: two threads would take each other's
        # numbers.
        random = _has_random_layers(self.model)
        if mode == "auto":
            return "stack" if stackable else "serial" if random or self.threads == 1 else "threads"
        if mode == "stack" and not stackable:
            _log.warning("this model cannot be stacked: its clients are trained one by one")
            return "serial"
        if mode == "threads" and random:
            _log.warning(
                "this model has dropout: its clients are trained one by one, not by threads"
            )
            return "serial"
        return mode

    def train(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain
    ) -> list[Outcome]:
        """Train every job from its own arrays; outcomes in the order of the jobs."""
        if self.mode == "stack" and objective.stackable:
            return [
                outcome
                for part in _parts(jobs, self.model)
                for outcome in train_stack(self.model, part, settings, objective)
            ]
        # A model that could be stacked has no random layers: threads are safe for it.
        if self.mode != "serial" and len(jobs) > 1 and self.threads > 1:
            return self._train_by_threads(jobs, settings, objective)
        return [train_one(self.model, job, settings, objective) for job in jobs]

    def _train_by_threads(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain
    ) -> list[Outcome]:
        if self._pool is None:
            # One core each: two clients side by side are faster than one client spread over two
            # cores.
            self._pool = ThreadPoolExecutor(
                self.threads, initializer=torch.set_num_threads, initargs=(1,)
            )

        def work(job: Job) -> Outcome:
            if not hasattr(self._own, "model"):
                self._own.model = copy.deepcopy(self.model)
            return train_one(self._own.model, job, settings, objective)

        return list(self._pool.map(work, jobs))


def _parts(jobs: Sequence[Job], model: nn.Module) -> list[list[Job]]:
    """Cut jobs into stacks of bounded memory."""
    model_bytes = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    parts: list[list[Job]] = [[]]
    held = 0
    for job in jobs:
        size = model_bytes + job.data.x.nbytes
        if parts[-1] and held + size > _STACK_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(job)
        held += size
    return parts


def load_arrays(model: nn.Module, arrays: Any) -> None:
    """Copy named arrays into a model's parameters and buffers; names and shapes must fit."""
    state = model.state_dict()
    if state.keys() != arrays.keys():
        odd = sorted(state.keys() ^ arrays.keys())
        raise ValueError(f"arrays do not fit the model; names on one side only: {odd[:5]}")
    with torch.no_grad():
        for name, tensor in state.items():
            array = arrays[name]
            if tuple(array.shape) != tuple(tensor.shape):
                raise ValueError(
                    f"array {name} has shape {array.shape}, the model's is {tuple(tensor.shape)}"
                )
            tensor.copy_(torch.from_numpy(array))


def read_arrays(model: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of a model's parameters and buffers by name."""
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def train_one(model: nn.Module, job: Job, settings: TrainSettings, objective: Plain) -> Outcome:
    """Train one client: plain mini-batch SGD, momentum starting at zero."""
    load_arrays(model, job.arrays)
    model.train()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    start = [p.detach().clone() for p in parameters]
    carried = {
        key: [torch.from_numpy(arrays[name]) for name in named]
        for key, arrays in job.carried.items()
    }
    batch_loss = objective.batch_loss(model, job)
    momenta = [torch.zeros_like(p) for p in parameters] if settings.momentum else []
    plan = batch_plans(
        [len(job.data)], settings.batch_size, settings.epochs, settings.steps, [job.seed]
    )[0]
    total = 0.0
    with _seeded_layers(model, job.seed):
        for row in plan:
            positions = torch.from_numpy(row[row != UNUSED])
            if len(positions) == 1 < len(plan) and _normalises(model):
                continue  # batch normalisation cannot take a lone sample
            loss = batch_loss(positions)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                objective.adjust(gradients, parameters, start, carried)
                sgd_(parameters, gradients, momenta, settings)
            total += loss.item()
    return Outcome(read_arrays(model), total / len(plan), len(job.data), len(plan))


class _seeded_layers:
    """Seed torch's global generator for models with dropout, and give it back afterwards."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        self._needed = _has_random_layers(model)
        self._seed = seed

    def __enter__(self) -> None:
        if self._needed:
            self._saved = torch.get_rng_state()
            torch.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        if self._needed:
            torch.set_rng_state(self._saved)


@lru_cache(maxsize=64)
def _has_random_layers(model: nn.Module) -> bool:
    return any(isinstance(layer, _RANDOM_LAYERS) for layer in model.modules())


@lru_cache(maxsize=64)
def _normalises(model: nn.Module) -> bool:
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())


@torch.no_grad()
def evaluate(
    model: nn.Module, arrays: Any, data: Split, batch_size: int = 512
) -> tuple[float, float]:
    """Return accuracy and mean loss of the model with these arrays on these data."""
    load_arrays(model, arrays)
    model.eval()
    correct = loss = 0.0
    for start in range(0, len(data), batch_size):
        x, y = data.x[start : start + batch_size], data.y[start : start + batch_size]
        logits = model(x)
        loss += functional.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
    return correct / len(data), loss / len(data)
