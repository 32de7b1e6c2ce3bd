"""What a client gets in the end: the model as it came, or tuned on its own data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..config import RunConfig
from ..tasks import Samples
from .evaluation import evaluate_all
from .job import Job, batch_seed
from .objectives.plain import Plain
from .train_settings import train_settings
from .trainer import Trainer

Arrays = dict[str, NDArray[Any]]

_EPOCHS = 2  # of light tuning, unless personalise.epochs says otherwise
_DEEPER = 10  # times as much is deep tuning
_HELD_OUT = 3  # one sample in so many decides


def served_models(
    trainer: Trainer,
    models: Sequence[Arrays],
    data: Sequence[Samples],
    keys: Sequence[str],
    config: RunConfig,
) -> list[Arrays]:
    """Return for each client the best of three: the model as it came, lightly or deeply tuned.

    The depth with the smallest loss on a held-out third of a client's samples is then used on all.
    With fewer than three samples it gets the model as it came. Deep tuning learns samples by heart,
    which held-out ones cannot show if they overlap with the others: then it is left out.
    """
    light = config.personalise.epochs or _EPOCHS
    depths = (0, light) if trainer.problem.overlapping else (0, light, _DEEPER * light)
    able = [place for place, own in enumerate(data) if len(own) >= _HELD_OUT]
    parts = [_kept_and_held(data[place], batch_seed(config.seed, keys[place], 0)) for place in able]
    kept, held = [part[0] for part in parts], [part[1] for part in parts]
    tuned = [models[place] for place in able]
    losses, done = [], 0
    for depth in depths:
        seeds = [batch_seed(config.seed, keys[place], depth) for place in able]
        tuned = tune(trainer, tuned, kept, seeds, config, depth - done)
        found = evaluate_all(trainer.model, tuned, held, trainer.problem, ())
        losses.append([own["loss"] for own in found])
        done = depth
    best = np.argmin(losses, axis=0) if able else np.empty(0, int)
    served = list(models)
    for choice, depth in enumerate(depths):
        rows = [place for place, own in zip(able, best, strict=True) if own == choice]
        seeds = [batch_seed(config.seed, keys[place], 0) for place in rows]
        own_models, own_data = [models[place] for place in rows], [data[place] for place in rows]
        for place, own in zip(
            rows, tune(trainer, own_models, own_data, seeds, config, depth), strict=True
        ):
            served[place] = own
    return served


def tune(
    trainer: Trainer,
    models: Sequence[Arrays],
    data: Sequence[Samples],
    seeds: Sequence[int],
    config: RunConfig,
    epochs: int,
) -> list[Arrays]:
    """Return each client's model after some epochs on its own data."""
    if not epochs or not models:
        return list(models)
    settings = replace(train_settings(config, 1), epochs=epochs, steps=0)
    jobs = list(map(Job, models, data, seeds))
    return [own.arrays for own in trainer.train(jobs, settings, Plain(config))]


def _kept_and_held(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Return the samples that tune a model, and those that judge it."""
    order = np.random.default_rng(seed).permutation(len(samples))
    held, kept = np.sort(order[::_HELD_OUT]), np.sort(np.delete(order, np.s_[::_HELD_OUT]))
    return samples.select(torch.from_numpy(kept)), samples.select(torch.from_numpy(held))
