"""The user's own model, named by ``module:attribute``."""

from collections.abc import Callable

import torch
from torch import nn

from ..errors import TaskError, imported, own_code
from ..problems import Problem
from .spec import ModelSpec

_EXPECTED = "'module:attribute', a callable(input_shape, num_classes) -> torch.nn.Module"
_BUILT_IN = "use a model for this kind of problem (segmenter, char-gru), or your own"


def own(spec: ModelSpec) -> nn.Module:
    """Build the user's model and try it on two zeros; failures are faults of the key ``model``."""
    factory = imported("model", spec.model, _EXPECTED)
    if not callable(factory):
        raise _fault(spec.model, f"it is not callable but {type(factory).__name__}")
    given = spec.input_shape, spec.num_classes
    with own_code(f"model = {spec.model!r}: callable(input_shape, num_classes) with {given}"):
        model = factory(*given)
    if not isinstance(model, nn.Module):
        raise _fault(spec.model, f"it returned {type(model).__name__}")
    try_out(spec, model)
    # A bare layer has no name; in a container it has one, by which its parameters are found.
    return nn.Sequential(model) if isinstance(model, nn.Linear) else model


def of_problem(problem: Problem | None) -> Callable[[], nn.Module] | None:
    """Return what builds the model that a problem of the user's own brings; None if it has none."""
    if problem is None or type(problem).model is Problem.model:
        return None
    name = f"{type(problem).__name__}.model"

    def build() -> nn.Module:
        with own_code(f"{name}()"):
            model = problem.model()
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
    expected = [(2, *spec.output_shape), (2, *spec.output_shape[1:], spec.output_shape[0])]
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if shape not in expected:
        listed = " or ".join(map(str, dict.fromkeys(expected)))
        raise _fault(spec.model, f"a batch of 2 gave {shape} instead of outputs of shape {listed}")


def _fault(name: str, what: str) -> TaskError:
    expected = f"expected {_EXPECTED}" if ":" in name else _BUILT_IN
    return TaskError(f"model = {name!r}: {what}; {expected}")
