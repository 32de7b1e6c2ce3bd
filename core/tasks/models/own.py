"""The user's own model, named by ``module:attribute``."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..errors import TaskError, one_line
from ..problems import Problem
from .spec import ModelSpec

_EXPECTED = "expected 'module:attribute', a callable(input_shape, num_classes) -> torch.nn.Module"
_BUILT_IN = "use a model for this kind of problem (segmenter, char-gru), or your own"


def own(spec: ModelSpec) -> nn.Module:
    """Build the model that the user's callable returns, after a trial with a batch of two zeros.

    Whatever goes wrong in the user's code is reported as a fault of the key ``model``.
    """
    factory = _find(spec.model)
    try:
        model = factory(spec.input_shape, spec.num_classes)
    except Exception as error:
        call = f"({spec.input_shape}, {spec.num_classes})"
        raise _fault(spec.model, f"calling it with {call} raised {error!r}") from error
    if not isinstance(model, nn.Module):
        raise _fault(spec.model, f"it returned {type(model).__name__}")
    try_out(spec, model)
    # A bare layer has no name; in a container it has one, by which its parameters are found.
    return nn.Sequential(model) if isinstance(model, nn.Linear) else model


def _find(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise _fault(name, "module or attribute is empty")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _fault(name, f"importing {module_name!r} raised {error!r}") from error
    if not hasattr(module, attribute):
        raise _fault(name, f"module {module_name!r} has no attribute {attribute!r}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise _fault(name, f"it is not callable but {type(factory).__name__}")
    return factory


def of_problem(problem: Problem | None) -> Callable[[], nn.Module] | None:
    """Return what builds the model that a problem of the user's own brings; None if it has none."""
    if problem is None or type(problem).model is Problem.model:
        return None
    name = f"{type(problem).__name__}.model"

    def build() -> nn.Module:
        try:
            model = problem.model()
        except Exception as error:
            raise TaskError(
                f"{name}() failed: {type(error).__name__}: {one_line(error)}"
            ) from error
        if not isinstance(model, nn.Module):
            raise TaskError(f"{name}() returned {type(model).__name__}, not a torch.nn.Module")
        return nn.Sequential(model) if isinstance(model, nn.Linear) else model

    return build


def try_out(spec: ModelSpec, model: nn.Module) -> None:
    """Run two samples of zeros and compare the output's shape with what the task needs."""
    modes = [(layer, layer.training) for layer in model.modules()]
    model.eval()  # the trial must not move batch-norm statistics
    batch = torch.zeros(2, *spec.input_shape, dtype=torch.int64 if spec.tokens else None)
    try:
        with torch.no_grad():
            output = model(batch)
    except Exception as error:
        fault = f"a batch of shape {tuple(batch.shape)} raised {error!r}"
        raise _fault(spec.model, fault) from error
    for layer, training in modes:
        layer.training = training
    expected = (2, *spec.output_shape)
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if shape != expected:
        raise _fault(
            spec.model, f"a batch of 2 gave {shape} instead of outputs of shape {expected}"
        )


def _fault(name: str, what: str) -> TaskError:
    expected = _EXPECTED if ":" in name else _BUILT_IN
    return TaskError(f"model = {name!r}: {what}; {expected}")
