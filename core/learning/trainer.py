"""The local loop, for one client or for all clients of a round that share a process."""

import copy
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import local as thread_local

import torch
from torch import nn

from ..tasks import Split
from ..tasks.problems import Classification, Problem
from .batches import UNUSED, batch_plans
from .job import Job, Outcome
from .model_arrays import frozen_digest, load_arrays, per_model, read_arrays, training_mode
from .objectives.plain import Plain
from .optimisers import Accumulated, precision, stepper
from .placement import device_of, moved
from .stack import can_stack, train_stack
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
        job per core, "serial" one after the other; "auto" takes the first of these that the
        model allows.
    threads : int (default: 0)
        Threads to use, 0 for as many as there are cores.
    problem : Problem, optional
        Whose loss is minimised; classification by default.
    """

    def __init__(
        self,
        model: nn.Module,
        mode: str = "auto",
        threads: int = 0,
        problem: Problem | None = None,
    ) -> None:
        self.model = model
        self.problem = problem or Classification()
        self.threads = threads or len(os.sched_getaffinity(0))
        self.mode = self._possible(mode)
        self._own = thread_local()
        self._pool: ThreadPoolExecutor | None = None

    @cached_property
    def frozen(self) -> str:
        """Checksum of what the model has that is not trained and never travels."""
        return frozen_digest(self.model)

    def _possible(self, mode: str) -> str:
        stackable = can_stack(self.model)
        # Dropout draws from torch's one global generator: two threads would take each other's
        # numbers. A GPU is shared by all threads in any case.
        random = _has_random_layers(self.model) or device_of(self.model).type != "cpu"
        if mode == "auto":
            return "stack" if stackable else "serial" if random or self.threads == 1 else "threads"
        if mode == "stack" and not stackable:
            _log.warning("this model cannot be stacked: its clients are trained one by one")
            return "serial"
        if mode == "threads" and random:
            _log.warning(
                "this model has dropout, or is not on the CPU: its clients are trained one by one, "
                "not by threads"
            )
            return "serial"
        return mode

    def train(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain
    ) -> list[Outcome]:
        """Train every job from its own arrays; outcomes in the order of the jobs."""
        in_memory = all(isinstance(job.data, Split) for job in jobs)
        if self.mode == "stack" and objective.stackable and settings.stackable and in_memory:
            return [
                outcome
                for part in _parts(jobs, self.model)
                for outcome in train_stack(self.model, part, settings, objective, self.problem)
            ]
        # A model that could be stacked has no random layers: threads are safe for it.
        if self.mode != "serial" and len(jobs) > 1 and self.threads > 1:
            return self._train_by_threads(jobs, settings, objective)
        return [train_one(self.model, job, settings, objective, self.problem) for job in jobs]

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
            return train_one(self._own.model, job, settings, objective, self.problem)

        return list(self._pool.map(work, jobs))


def _parts(jobs: Sequence[Job], model: nn.Module) -> list[list[Job]]:
    """Cut jobs into stacks of bounded memory."""
    model_bytes = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    parts: list[list[Job]] = [[]]
    held = 0
    for job in jobs:
        size = model_bytes + job.data.nbytes
        if parts[-1] and held + size > _STACK_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(job)
        held += size
    return parts


def train_one(
    model: nn.Module,
    job: Job,
    settings: TrainSettings,
    objective: Plain,
    problem: Problem | None = None,
) -> Outcome:
    """Train one client in mini-batches; the optimiser is reset every round.

    Parameters
    ----------
    model : nn.Module
        The architecture, on the device to train on; it is left with the trained weights.
    job : Job
        Weights to begin with, and data.
    settings : TrainSettings
        How long, and by which optimiser.
    objective : Plain
        What is added to the loss, or to its gradients.
    problem : Problem, optional
        Whose loss it is; classification by default.
    """
    problem = problem or Classification()
    load_arrays(model, job.arrays)
    training_mode(model)
    device = device_of(model)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    start = [p.detach().clone() for p in parameters]
    carried = {
        key: [torch.from_numpy(arrays[name]).to(device) for name in named]
        for key, arrays in job.carried.items()
    }
    batch_loss = objective.batch_loss(model, job, problem)
    step = stepper(parameters, settings)
    plan = batch_plans(
        [len(job.data)], settings.batch_size, settings.epochs, settings.steps, [job.seed]
    )[0]
    rows = [torch.from_numpy(row[row != UNUSED]) for row in plan]
    if len(rows) > 1 and _normalises(model):  # batch normalisation cannot take a lone sample
        rows = [positions for positions in rows if len(positions) > 1]
    total = 0.0
    pending = Accumulated(settings.accumulate)
    with _seeded_layers(model, job.seed):
        for number, (positions, (x, y)) in enumerate(
            zip(rows, job.data.follow(rows), strict=True), 1
        ):
            with precision(settings, device):
                loss = batch_loss(positions.to(device), moved(x, device), moved(y, device))
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            total += loss.item()
            with torch.no_grad():
                mean = pending.add(gradients, last=number == len(rows))
                if mean is not None:
                    objective.adjust(mean, parameters, start, carried)
                    step(mean)
    steps = -(-len(rows) // settings.accumulate)
    return Outcome(read_arrays(model), total / max(1, len(rows)), len(job.data), steps)


class _seeded_layers:
    """Seed torch's global generator for models with dropout, and restore it afterwards."""

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


@per_model
def _has_random_layers(model: nn.Module) -> bool:
    return any(isinstance(layer, _RANDOM_LAYERS) for layer in model.modules())


@per_model
def _normalises(model: nn.Module) -> bool:
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())
