"""Data sets by name: one file each, one line in the registry each."""

from collections.abc import Callable
from dataclasses import replace

from ..errors import invalid, optional_packages
from ..problems import Problem, problem_of
from ..spec import TaskSpec
from . import (
    blobs,
    cifar,
    diabetes,
    digits,
    fashion_mnist,
    hugging_face,
    newsgroups,
    npz,
    own,
    poems,
    shapes,
    synthetic,
)
from .raw import RawData, kind_of, rows, tidied

DATASETS: dict[str, Callable[[TaskSpec], RawData]] = {
    "digits": digits.load,
    "blobs": blobs.load,
    "synthetic": synthetic.load,
    "fashion-mnist": fashion_mnist.load,
    "cifar10": cifar.load,
    "cifar100": cifar.load,
    "npz": npz.load,
    "20news": newsgroups.load,
    "diabetes": diabetes.load,
    "poems": poems.load,
    "shapes": shapes.load,
}


def load_raw(spec: TaskSpec, problem: Problem | None = None) -> RawData:
    """Read and check the data of a task, with the number of classes that the spec asks for."""
    with optional_packages(f"task = {spec.task!r}"):
        if spec.task.startswith("hf:"):
            raw = hugging_face.load(spec)
        else:
            raw = own.load(spec, problem) if ":" in spec.task else DATASETS[spec.task](spec)
        raw = tidied(raw, spec.path or spec.task, problem or chosen_problem(spec, raw))
    if not spec.num_classes:
        return raw
    if spec.num_classes < raw.num_classes:
        allowed = f"0 or at least {raw.num_classes}, the number of classes in the data"
        raise invalid("num_classes", spec.num_classes, allowed)
    return replace(raw, num_classes=spec.num_classes)


def chosen_problem(spec: TaskSpec, raw: RawData) -> Problem:
    """Return what is learned from data: by the spec, by the data, or by the look of the targets."""
    named = spec.kind if spec.kind != "auto" else raw.problem or kind_of(raw.y_train)
    problem = problem_of(named) if isinstance(named, str) else named
    if spec.tokens:
        problem.tokens = True
    return problem


__all__ = ["DATASETS", "RawData", "chosen_problem", "load_raw", "rows"]
