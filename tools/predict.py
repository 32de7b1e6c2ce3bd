"""The model of a finished run, to predict with."""

import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ..core.config import read_config
from ..core.learning.evaluation import evaluate
from ..core.learning.model_arrays import read_arrays
from ..core.tasks import Split, Task, TaskError, TaskSpec, load_task
from ..core.tasks.datasets.raw import model_inputs as model_inputs
from ..core.tasks.errors import CONFIG_KEYS, one_line
from ..core.tasks.metrics import ACCURACY, Metric
from ..core.tasks.models import build_model
from ..core.tasks.problems import Classification, MultiLabel, Problem, Segmentation
from ..core.tasks.scaling import Scaling, scaling_of
from ..server_app.run_folder import RunFolder, RunFolderError
from .report.formatting import natural_order
from .report.history import History
from .report.member_charts import last_memberships
from .trust import check_trusted

_BATCH = 1024
_LEARNED = "forager_problem"  # of a loaded model: what its run learned, and a target's shape


def load_model(
    run: str | Path,
    input_shape: tuple[int, ...],
    *,
    cohort: str = "",
    best: bool = False,
    trust: bool = False,
) -> nn.Module:
    """Return the trained model of a run, in evaluation mode; it scales inputs if the run did.

    `input_shape` is that of one input, as in ``x.shape[1:]``; `cohort` names one that has a model
    of its own; `best` takes the model of the best round, not of the last. With `trust` the modules
    that the run's config names are imported: a task or a model of your own.
    :class:`RunFolderError` if there is no such model, or no trust in its code.
    """
    folder = RunFolder(run)
    path = folder.path / f"model-{cohort}.safetensors" if cohort else folder.model_path
    path = folder.best_path(cohort) if best else path
    if not path.is_file():
        names = cohorts_with_models(folder.path)
        there = f"; cohorts with models of their own are {', '.join(names)}" if names else ""
        raise RunFolderError(f"{path} does not exist: a run writes its model when it ends{there}")
    arrays, learned = _arrays(path), None
    spec = _spec(folder, trust)
    try:
        task = load_task(spec)
        learned = task.problem, task.target_shape
        model, expected = task.build_model(), task.input_shape
        if tuple(input_shape) != expected:
            without = (1, *input_shape) == tuple(expected)
            hint = ", the channel first: x[:, None]" if without else ""
            raise RunFolderError(
                f"{path} does not fit inputs of shape {tuple(input_shape)}: it reads {expected}"
                f"{hint}"
            )
    except TaskError:  # the data are not here; a classifier's shape is known without them
        outputs = next(reversed(arrays.values())).shape[0]  # the last layer's bias or weight
        name = "softmax" if spec.model == "auto" else spec.model
        shape = tuple(input_shape)
        model = build_model(
            *(name, shape, int(outputs)),
            seed=spec.seed,
            hidden=spec.hidden,
            projection=spec.projection,
        )
    try:
        model.load_state_dict(arrays)
    except RuntimeError as error:
        raise RunFolderError(
            f"{path} does not fit inputs of shape {tuple(input_shape)}: {error}"
        ) from error
    scaling = scaling_of(spec.scale)
    whole = model if scaling is None else nn.Sequential(ScaledInputs(scaling), model)
    setattr(whole, _LEARNED, learned)
    return whole.eval()


def write_onnx(
    run: str | Path, path: Path, *, cohort: str = "", best: bool = False, trust: bool = False
) -> tuple[int, ...]:
    """Write the model of a run as ONNX, as :func:`load_model` finds it; return an input's shape."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise RunFolderError(
            f"PyTorch's exporter needs {' and '.join(missing)}: pip install 'forager-fl[onnx]'"
        )
    task = task_of_run(run, trust=trust)
    if task is None:
        raise RunFolderError(f"{run}: its data are not here, so the shape of inputs is not known")
    model = load_model(run, task.input_shape, cohort=cohort, best=best, trust=trust)
    sample = torch.zeros(2, *task.input_shape, dtype=task.input_dtype)
    # Of its own parts, and of torchvision, which nothing here needs
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        torch.onnx.export(
            model,
            (sample,),
            path,
            input_names=["x"],
            output_names=["outputs"],
            dynamic_shapes=({0: "samples"},),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    except Exception as error:  # whatever a user's model does
        raise RunFolderError(f"PyTorch cannot export this model: {one_line(error)}") from error
    return task.input_shape


def is_tuned(folder: Path | str) -> bool:
    """Return whether clients of a run tune the model on their own data before they use it."""
    saved = RunFolder(folder).read_config()
    return saved.get("serving") == "best" or bool(saved.get("personalise.epochs"))


class ScaledInputs(nn.Module):
    """Scales inputs as the run did, so that a model reads them as they are."""

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.scaling = scaling

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return scaled inputs."""
        return self.scaling.apply(inputs)


def task_of_run(run: str | Path, *, trust: bool = False) -> Task | None:
    """Return the task of a run; None if its data are not here."""
    try:
        task = load_task(_spec(RunFolder(run), trust))
        return task if task.problem else None
    except TaskError:
        return None


def _settings(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a saved config, maybe of an earlier version, says of data and model."""
    names = sorted({"objective", *(CONFIG_KEYS.get(f.name, f.name) for f in fields(TaskSpec))})
    known = {name: saved[name] for name in names if name in saved}
    return {"moon.projection": 0, **known}  # runs that do not say had none


def _spec(folder: RunFolder, trust: bool) -> TaskSpec:
    saved = folder.read_config()
    check_trusted(folder.path, {key: saved.get(key, "") for key in ("task", "model")}, trust)
    return read_config(_settings(saved)).task_spec()


def _arrays(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged, or not a model: {error}") from error


def predict(
    model: nn.Module, x: NDArray[Any], problem: Problem | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what is predicted for every input, and the scores behind it.

    For classes (of samples, pixels or tokens) these are the likeliest and the probabilities of all,
    for several labels those likelier than not and their probabilities, for numbers the outputs.
    `problem` is what was learned: by default what the run of a loaded model learned.
    """
    known, places = getattr(model, _LEARNED, None) or (Classification(), ())
    problem = problem or known
    kind = np.int64 if problem.tokens else np.float32
    inputs = torch.from_numpy(np.ascontiguousarray(x, dtype=kind))
    with torch.no_grad():
        parts = [model(inputs[at : at + _BATCH]) for at in range(0, len(inputs), _BATCH)]
    outputs = torch.cat(parts)
    if isinstance(problem, Segmentation) and places:
        outputs = problem.classes_second(outputs, outputs.new_empty(len(outputs), *places))
    if isinstance(problem, Classification | Segmentation):
        return outputs.argmax(dim=1).numpy(), outputs.softmax(dim=1).numpy()
    if isinstance(problem, MultiLabel):
        return (outputs > 0).long().numpy(), outputs.sigmoid().numpy()
    return outputs.numpy(), outputs.numpy()


def columns(problem: Problem) -> tuple[str, ...]:
    """Return the names under which predictions, and the scores behind them, are kept."""
    if isinstance(problem, Classification | Segmentation):
        return "classes", "probabilities"
    return ("labels", "probabilities") if isinstance(problem, MultiLabel) else ("predictions",)


def scored(
    model: nn.Module, x: NDArray[Any], targets: NDArray[Any], task: Task | None
) -> dict[Metric, float]:
    """Return the metrics of a run's task for inputs with known targets; accuracy without one."""
    problem = task.problem if task else Classification()
    metrics = task.metrics if task else (ACCURACY,)
    known = torch.from_numpy(problem.checked_targets(targets, len(x), "y"))
    kind = np.int64 if problem.tokens else np.float32
    data = Split(torch.from_numpy(np.ascontiguousarray(x, dtype=kind)), known)
    found = evaluate(model, read_arrays(model), data, problem, metrics)
    return {metric: found[metric.name] for metric in metrics}


def cohorts_with_models(run: str | Path) -> list[str]:
    """Return the names of a run's cohorts that have a model of their own."""
    files = Path(run).glob("model-*.safetensors")
    return sorted((p.stem.removeprefix("model-") for p in files), key=natural_order)


def cohort_of(run: str | Path, client: str) -> str:
    """Return the cohort whose model a client would get; empty where all share one."""
    history = History.from_events(RunFolder(run).read_events())
    where = last_memberships(history)
    keys = [key for key in {*where, *history.clients} if client in (key, history.name_of(key))]
    if not keys:
        known = [history.name_of(key) for key in history.clients[:10]]
        raise RunFolderError(f"{run} has no client {client!r}; there are {', '.join(known)}, ...")
    cohort = where.get(keys[0], "")
    return cohort if cohort in cohorts_with_models(run) else ""


def class_counts(classes: NDArray[np.int64]) -> str:
    """Write how often each class was predicted, as JSON."""
    names, counts = np.unique(classes, return_counts=True)
    return json.dumps({str(n): int(c) for n, c in zip(names, counts, strict=True)})
