"""Data sets by name: one file each, one line in the registry each."""

from collections.abc import Callable
from dataclasses import replace

from ..errors import invalid, optional_packages
from ..spec import TaskSpec
from . import blobs, cifar, digits, fashion_mnist, newsgroups, npz, own, synthetic
from .raw import RawData, rows, tidied

DATASETS: dict[str, Callable[[TaskSpec], RawData]] = {
    "digits": digits.load,
    "blobs": blobs.load,
    "synthetic": synthetic.load,
    "fashion-mnist": fashion_mnist.load,
    "cifar10": cifar.load_cifar10,
    "cifar100": cifar.load_cifar100,
    "npz": npz.load,
    "20news": newsgroups.load,
}


def load_raw(spec: TaskSpec) -> RawData:
    """Read and check the data of a task, with the number of classes that the spec asks for.

    Raises
    ------
    TaskError
        If the data cannot be found, is damaged, or has more classes than the spec says.

    Examples
    --------
    >>> load_raw(TaskSpec(task="synthetic")).input_shape
    (60,)
    """
    load = own.load if ":" in spec.task else DATASETS[spec.task]
    with optional_packages(f"task = {spec.task!r}"):
        raw = tidied(load(spec), spec.path or spec.task)
    if not spec.num_classes:
        return raw
    if spec.num_classes < raw.num_classes:
        allowed = f"0 or at least {raw.num_classes}, the number of classes in the data"
        raise invalid("num_classes", spec.num_classes, allowed)
    return replace(raw, num_classes=spec.num_classes)


__all__ = ["DATASETS", "RawData", "load_raw", "rows"]
