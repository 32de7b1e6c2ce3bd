"""What a device brings: an ``.npz`` file, a table, or a folder that ``hf:`` tasks read."""

from dataclasses import replace

from ..errors import TaskError
from ..noise import classes_after_noise
from ..problems import Problem
from ..spec import TaskSpec
from . import chosen_problem, hugging_face
from .npz import load_device_file
from .raw import RawData, tidied

_SAYS_ITSELF = ("regression", "multi-label")  # a target has as many columns as a model outputs


def load_device_data(
    path: str, spec: TaskSpec, classes: int, problem: Problem | None, fault: str
) -> RawData:
    """Read and check a device's own data."""
    tables = hugging_face.reads(path)
    raw = hugging_face.load_device(path, spec) if tables else load_device_file(path)
    problem = problem or chosen_problem(spec, raw)
    if not classes and problem.kind not in _SAYS_ITSELF:
        raise TaskError(f"{fault}; a device sees only its own classes: set data.num-classes")
    after = classes_after_noise(spec, classes)
    checked = tidied(replace(raw, num_classes=after), path, problem)
    return replace(checked, num_classes=classes or checked.num_classes)
