"""The local loop, for one client or for all clients of a round that share a process."""

import copy
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from threading import local as thread_local

import numpy as np
import torch
from torch import nn

from ..tasks import Split
from ..tasks.errors import one_line
from ..tasks.problems import Classification, Problem
from .fisher import fisher_diagonal
from .fused_model import fused_model
from .job import UNUSED, Job, Outcome, Outcomes, batch_plans
from .model_arrays import (
    device_of,
    frozen_digest,
    load_arrays,
    moved,
    per_model,
    read_arrays,
    training_mode,
)
from .objectives.plain import Plain
from .stack import StackGradients, can_stack, stacked_gradients, train_stack
from .train_settings import TrainSettings, stepper
from .vmap_stack import Trial, may_vmap, tried, vmapped_gradients

_log = logging.getLogger("forager")
_STACK_BYTES = 64 * 2**20  # data and parameters that one stack may hold
# "auto" stacks models that are not chains of linear layers if parameters and activations of one
# client's step take at most this many bytes, and if there are at least this many clients. With more
# work per step a stack gains little: it waits for memory.
_LIGHT = 128 * 2**10
_MANY = 16
_RANDOM_LAYERS = (nn.modules.dropout._DropoutNd,)


class Trainer:
    """Trains jobs of one model in the fastest way that gives the same result.

    "stack" trains all jobs in one computation, "threads" one job per core, "serial" one after the
    other. "auto" decides by the model, not by the clock, so that a run can be repeated.
    """

    def __init__(
        self, model: nn.Module, mode: str = "auto", threads: int = 0, problem: Problem | None = None
    ) -> None:
        self.model = model
        self.problem = problem or Classification()
        self.threads = threads or len(os.sched_getaffinity(0))
        self._by_hand = can_stack(model)
        # Dropout draws from torch's one global generator: two threads would take each other's
        # numbers. A GPU is shared by all threads in any case.
        self._random = _has_random_layers(model)
        self._threadable = not self._random and device_of(model).type == "cpu"
        self.mode = self._possible(mode)
        self._own = thread_local()
        self._pool: ThreadPoolExecutor | None = None
        self._trial: Trial | None = None

    @cached_property
    def frozen(self) -> str:
        """Checksum of what the model has that is not trained and never travels."""
        return frozen_digest(self.model)

    @cached_property
    def _quick(self) -> nn.Module:
        return fused_model(self.model)

    def _possible(self, mode: str) -> str:
        """Return the mode, as far as the model alone decides it."""
        stackable = self._by_hand or (not self._random and may_vmap(self.model))
        if mode == "stack" and not stackable:
            _log.warning(
                "this model has dropout or running statistics and cannot be stacked: its clients "
                "are trained one by one"
            )
            return "serial"
        if mode == "threads" and not self._threadable:
            _log.warning(
                "this model has dropout, or is not on the CPU: its clients are trained one by one, "
                "not by threads"
            )
            return "serial"
        if mode == "auto" and self._by_hand:
            return "stack"
        if mode == "auto" and not stackable:
            return "threads" if self._threadable and self.threads > 1 else "serial"
        return mode

    def train(self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain) -> Outcomes:
        """Train every job from its own arrays; outcomes in the order of the jobs."""
        if self._stacks(jobs, settings, objective):
            try:
                return self._train_stacked(jobs, settings, objective)
            except Exception as error:  # a user's model may do with some data what vmap cannot
                if self._by_hand:
                    raise
                self._trial = Trial(f"{type(error).__name__}: {one_line(error)}")
                _log.warning("clients are trained one by one from now on: %s", self._trial.reason)
        if self._threadable and len(jobs) > 1 and self.threads > 1 and self.mode != "serial":
            return Outcomes.of(self._train_by_threads(jobs, settings, objective))
        return Outcomes.of(
            [train_one(self._quick, job, settings, objective, self.problem) for job in jobs]
        )

    def _stacks(self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain) -> bool:
        """Return whether jobs are stacked: where that is possible, and of use."""
        few = self.mode == "auto" and len(jobs) < _MANY
        if self.mode in ("threads", "serial") or few or not settings.stackable:
            return False
        in_memory = all(isinstance(job.data, Split) for job in jobs)
        if not (objective.stacks(self._by_hand) and in_memory):
            return False
        if settings.squares and not self._squares_stack(jobs, objective):
            return False
        if not self._by_hand and self._tried(jobs).reason:
            return False
        return self.mode == "stack" or self._light(jobs, settings)

    def _squares_stack(self, jobs: Sequence[Job], objective: Plain) -> bool:
        """Return whether a stack can add up the squared gradients of each sample's own loss."""
        plain = type(objective).added is Plain.added
        return self._by_hand and plain and all(job.weights is None for job in jobs)

    def _tried(self, jobs: Sequence[Job]) -> Trial:
        """Return what came of trying the model out, which is done once."""
        if self._trial is None:
            self._trial = tried(self.model, self.problem, jobs)
            if self._trial.reason and self.mode == "stack":
                _log.warning(
                    "this model cannot be stacked: its clients are trained one by one (%s)",
                    self._trial.reason,
                )
        return self._trial

    def _light(self, jobs: Sequence[Job], settings: TrainSettings) -> bool:
        """Return whether a step is so little work that most of its time is spent around it."""
        batch = min(settings.batch_size, max(len(job.data) for job in jobs))
        return batch * self._tried(jobs).saved + _parameter_bytes(self.model) <= _LIGHT

    def _train_stacked(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain
    ) -> Outcomes:
        saved = 0.0
        gradients: StackGradients = stacked_gradients
        if not self._by_hand:
            saved = settings.batch_size * self._tried(jobs).saved
            gradients = vmapped_gradients
            training_mode(self.model)
        trained = [
            train_stack(self.model, part, settings, objective, self.problem, gradients)
            for part in _parts(jobs, self.model, saved)
        ]
        return Outcomes.of(trained[0] if len(trained) == 1 else list(chain.from_iterable(trained)))

    def _train_by_threads(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain
    ) -> Sequence[Outcome]:
        if self._pool is None:
            # One core each: two clients side by side are faster than one client spread over two
            # cores.
            self._pool = ThreadPoolExecutor(
                self.threads, initializer=torch.set_num_threads, initargs=(1,)
            )

        quick = self._quick  # made once, before there is more than one thread

        def work(number: int) -> Outcome:
            if not hasattr(self._own, "model"):
                self._own.model = copy.deepcopy(quick)
            return train_one(self._own.model, jobs[number], settings, objective, self.problem)

        # Whoever is free takes the next job. The longest go first: a long one at the end would
        # leave the other threads without work.
        order = sorted(range(len(jobs)), key=lambda number: -len(jobs[number].data))
        outcomes = dict(zip(order, self._pool.map(work, order), strict=True))
        return [outcomes[number] for number in range(len(jobs))]


def _parts(jobs: Sequence[Job], model: nn.Module, saved: float) -> Sequence[Sequence[Job]]:
    """Cut jobs into stacks of bounded memory; ``saved`` bytes of a step are for the way back."""
    model_bytes = 4 * _parameter_bytes(model)
    sizes = [model_bytes + job.data.nbytes + saved for job in jobs]
    if sum(sizes) <= _STACK_BYTES:
        return [jobs]
    parts: list[list[Job]] = [[]]
    held = 0.0
    for job, size in zip(jobs, sizes, strict=True):
        if parts[-1] and held + size > _STACK_BYTES:
            parts.append([])
            held = 0.0
        parts[-1].append(job)
        held += size
    return parts


def _parameter_bytes(model: nn.Module) -> int:
    return sum(p.nbytes for p in model.parameters())


def train_one(
    model: nn.Module,
    job: Job,
    settings: TrainSettings,
    objective: Plain,
    problem: Problem | None = None,
) -> Outcome:
    """Train one client in mini-batches; the optimiser is reset every round."""
    problem = objective.minimised(problem or Classification())
    load_arrays(model, job.arrays)
    training_mode(model)
    device = device_of(model)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    start = [p.detach().clone() for p in parameters]
    carried = {
        key: [torch.from_numpy(job.carried[key][name]).to(device) for name in named]
        for key in objective.carries
    }
    batch_loss = objective.batch_loss(model, job, problem)
    step = stepper(parameters, settings)
    plan = batch_plans(
        *([len(job.data)], settings.batch_size, settings.epochs),
        *(job.steps or settings.steps, [job.seed]),
    )[0]
    rows = [torch.from_numpy(row[row != UNUSED]) for row in plan]
    if len(rows) > 1 and _normalises(model):  # batch normalisation cannot take a lone sample
        rows = [positions for positions in rows if len(positions) > 1]
    total = 0.0
    size = sum(p.numel() for p in parameters)
    squares = np.zeros((settings.squares, size), dtype=np.float32) if settings.squares else None
    with _seeded_layers(model, job.seed):
        for number, (positions, (x, y)) in enumerate(zip(rows, job.data.follow(rows), strict=True)):
            x, y = moved(x, device), moved(y, device)
            if squares is not None and (part := settings.squares_of(number)) is not None:
                squares[part] += fisher_diagonal(model, problem.loss, x, y)
            loss = batch_loss(positions.to(device), x, y)
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            total += loss.item()
            with torch.no_grad():
                objective.adjust(gradients, parameters, start, carried)
                step(gradients)
    if squares is not None:
        squares /= max(1, settings.squared_of(len(rows)))
    return Outcome(read_arrays(model), total / max(1, len(rows)), len(job.data), len(rows), squares)


@contextmanager
def _seeded_layers(model: nn.Module, seed: int) -> Iterator[None]:
    """Seed torch's global generator for models with dropout, and restore it afterwards."""
    if not _has_random_layers(model):
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@per_model
def _has_random_layers(model: nn.Module) -> bool:
    return any(isinstance(layer, _RANDOM_LAYERS) for layer in model.modules())


@per_model
def _normalises(model: nn.Module) -> bool:
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())
