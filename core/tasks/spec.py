"""What a task is made of: one flat, hashable record of settings."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import invalid, unknown

# Values of ``scale``, and the beginning of one that is known in numbers. Here, not beside the code
# that scales: a config is read without torch.
NONE, STANDARD = "none", "standard"
FOUND = f"{STANDARD}:"
APP = "app:"  # the beginning of a task that is the app of somebody else
FEWEST_TO_SCALE = 3  # clients that must report theirs: of two, nobody knows which one is wrong


@dataclass(frozen=True)
class TaskSpec:
    """Settings of a task: data, model, how the data is spread, and its noise."""

    # A built-in data set, ``npz`` for a user's own file, ``hf:<name>`` for a data set of Hugging
    # Face or a local folder, or ``module:attribute`` for a user's own task
    task: str = "digits"
    model: str = "auto"  # suits the problem; ``frozen:<backbone>`` trains a head on fixed features
    partition: str = "dirichlet"
    noise: str = "none"
    seed: int = 0  # of every random choice that the task makes
    path: str = ""  # of a file or folder; empty for the usual place or a download
    num_classes: int = 0  # 0 reads it from the data; a device with only its own file needs it
    validation_share: float = 0.2  # of the test pool: the server's clean validation set
    client_test_share: float = 0.0  # of each client's samples, unless users bring test samples
    alpha: float = 0.3  # concentration of ``dirichlet``: small is skewed
    shards_per_client: int = 2
    classes_per_client: int = 2  # of ``pathological``
    group_kind: str = "none"  # how the data of planted groups of clients differ
    group_count: int = 2  # those of ``class-groups`` included
    noise_rate: float = 0.4  # share of a client's training samples that are affected
    noise_clients: float = 0.0  # share of the clients whose labels are all random
    noise_removed: float = 0.5  # share of the classes that open-set noise takes out of the task
    hidden: int = 64  # width of the hidden layers of models that have a choice
    projection: int = 0  # width of a projection in front of the model's head; 0 for none
    cache_dir: str = ""  # for downloads and derived files; empty for the user's cache
    kind: str = "auto"  # of problem, for data that do not say; goes by the targets
    metrics: str = ""  # separated by commas, the one that decides first; empty: the problem's own
    tokens: bool = False  # whether inputs are integers, such as token ids, and stay integers
    input_columns: str = ""  # of tables; empty for all others
    target_column: str = ""  # empty for the usual name
    user_column: str = ""  # empty for none
    # ``none``, ``standard`` (not known yet: inputs stay as they are), or the numbers to scale
    # inputs by, as :meth:`core.tasks.scaling.Scaling.text` writes them
    scale: str = NONE


_Rule = tuple[Callable[[Any], bool], str]
_SHARE: _Rule = (lambda share: 0 <= share < 1, "a number in [0, 1)")
_COUNT: _Rule = (lambda count: count >= 1, "a whole number of at least 1")
_RULES: dict[str, _Rule] = {
    "seed": (lambda seed: seed >= 0, "a whole number of at least 0"),
    "num_classes": (lambda count: count == 0 or count >= 2, "0 (from the data) or at least 2"),
    "validation_share": _SHARE,
    "client_test_share": _SHARE,
    "alpha": (lambda alpha: 0 < alpha < math.inf, "a finite number above 0"),
    "shards_per_client": _COUNT,
    "classes_per_client": _COUNT,
    "group_count": _COUNT,
    "noise_rate": (lambda rate: 0 <= rate <= 1, "a number in [0, 1]"),
    "noise_clients": (lambda share: 0 <= share <= 1, "a number in [0, 1]"),
    "noise_removed": (lambda share: 0 <= share <= 1, "a number in [0, 1]"),
    "hidden": _COUNT,
    "projection": (lambda width: width >= 0, "a whole number of at least 0"),
}


def check_spec(spec: TaskSpec, names: Mapping[str, Collection[str]]) -> None:
    """Refuse a spec with a wrong type, a value out of range or an unknown name."""
    for field in fields(spec):
        _check_type(field.name, getattr(spec, field.name), type(field.default))
    for name, (holds, allowed) in _RULES.items():
        if not holds(getattr(spec, name)):
            raise invalid(name, getattr(spec, name), allowed)
    for name, known in names.items():
        if getattr(spec, name) not in known:
            raise unknown(name, getattr(spec, name), known)


def _check_type(name: str, value: object, expected: type) -> None:
    accepted: tuple[type, ...] = (int, float) if expected is float else (expected,)
    if isinstance(value, bool) != (expected is bool) or not isinstance(value, accepted):
        kinds = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        kind = kinds[expected]
        raise invalid(name, value, kind)
