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
FEWEST_TO_SCALE = 3  # clients that must report theirs: of two, nobody knows which one is wrong


@dataclass(frozen=True)
class TaskSpec:
    """Settings of a task: data, model, how the data is spread, and its noise.

    Parameters
    ----------
    task : str
        A built-in data set such as ``digits``, ``npz`` for a user's own file, ``hf:<name>`` for
        a data set of Hugging Face or a local folder, or ``module:attribute`` for a user's own
        task.
    model : str
        Name of the model; ``auto`` suits the problem, ``frozen:<backbone>`` trains a linear head
        on fixed features.
    partition : str
        ``iid``, ``dirichlet``, ``shards``, ``pathological``, ``class-groups`` or ``natural``.
    noise : str
        ``none``, ``closed-set``, ``open-set`` or ``attribute``.
    seed : int
        Seed of every random choice that the task makes.
    path : str
        File or folder of ``npz``, ``fashion-mnist``, ``cifar*`` and ``20news``; empty stands for
        the usual place or a download.
    num_classes : int
        Number of classes; 0 reads it from the data. A device that holds only its own file needs it.
    validation_share : float
        Share of the test pool that the server keeps as its clean validation set.
    client_test_share : float
        Share of each client's samples held out as its own test data; without effect where natural
        users bring their own test samples.
    alpha : float
        Concentration of ``dirichlet``: small is skewed.
    shards_per_client : int
        Shards that each client of ``shards`` gets.
    classes_per_client : int
        Classes that each client of ``pathological`` gets.
    group_kind : str
        How the data of planted groups of clients differ: ``none``, ``rotation`` or
        ``label-permutation``.
    group_strength : float
        How far ``affine-shift`` goes.
    group_count : int
        Number of planted groups, those of ``class-groups`` included.
    synthetic_alpha, synthetic_beta : float
        How much the clients' models, and their inputs, differ in ``synthetic``.
    noise_rate : float
        Share of a client's training samples that the noise affects.
    noise_severity : int
        Strength of attribute noise, from 1 to 5.
    noise_kinds : str
        Names of attribute noise separated by commas, or ``all``.
    noise_removed : float
        Share of the classes that open-set noise takes out of the task.
    noise_clients : float
        Share of the clients whose labels are all random.
    hidden : int
        Width of the hidden layers of the models that have a choice.
    projection : int
        Width of a projection in front of the model's head; 0 for none.
    cache_dir : str
        Folder for downloads and derived files; empty stands for ``forager`` in the user's cache.
    kind : str
        Kind of problem, for data that do not say; ``auto`` goes by the targets.
    metrics : str
        Metrics separated by commas, the one that decides first; empty for the problem's own.
    tokens : bool
        Whether inputs are integers, such as token ids, and stay integers.
    workers : int
        Processes that read data sets ahead; 0 reads in the training process.
    input_columns, target_column, user_column : str
        Columns of tables; empty stands for all others, the usual name, and none.
    scale : str
        ``none``, ``standard`` (not known yet: inputs stay as they are), or the numbers to scale
        inputs by, as :meth:`core.tasks.scaling.Scaling.text` writes them.
    """

    task: str = "digits"
    model: str = "auto"
    partition: str = "dirichlet"
    noise: str = "none"
    seed: int = 0
    path: str = ""
    num_classes: int = 0
    validation_share: float = 0.2
    client_test_share: float = 0.0
    alpha: float = 0.3
    shards_per_client: int = 2
    classes_per_client: int = 2
    group_kind: str = "none"
    group_count: int = 2
    group_strength: float = 0.5
    synthetic_alpha: float = 1.0
    synthetic_beta: float = 1.0
    noise_rate: float = 0.4
    noise_severity: int = 5
    noise_kinds: str = "all"
    noise_removed: float = 0.5
    noise_clients: float = 0.0
    hidden: int = 64
    projection: int = 0
    cache_dir: str = ""
    kind: str = "auto"
    metrics: str = ""
    tokens: bool = False
    workers: int = 0
    input_columns: str = ""
    target_column: str = ""
    user_column: str = ""
    scale: str = NONE


_Rule = tuple[Callable[[Any], bool], str]
_SHARE: _Rule = (lambda share: 0 <= share < 1, "a number in [0, 1)")
_COUNT: _Rule = (lambda count: count >= 1, "a whole number of at least 1")
_SPREAD: _Rule = (lambda spread: 0 <= spread < math.inf, "a finite number of at least 0")
_RULES: dict[str, _Rule] = {
    "seed": (lambda seed: seed >= 0, "a whole number of at least 0"),
    "num_classes": (lambda count: count == 0 or count >= 2, "0 (from the data) or at least 2"),
    "validation_share": _SHARE,
    "client_test_share": _SHARE,
    "alpha": (lambda alpha: 0 < alpha < math.inf, "a finite number above 0"),
    "shards_per_client": _COUNT,
    "classes_per_client": _COUNT,
    "group_count": _COUNT,
    "group_strength": (lambda strength: strength >= 0, "a number from 0 on"),
    "synthetic_alpha": _SPREAD,
    "synthetic_beta": _SPREAD,
    "noise_rate": (lambda rate: 0 <= rate <= 1, "a number in [0, 1]"),
    "noise_clients": (lambda share: 0 <= share <= 1, "a number in [0, 1]"),
    "noise_removed": (lambda share: 0 <= share <= 1, "a number in [0, 1]"),
    "noise_severity": (lambda severity: 1 <= severity <= 5, "a whole number from 1 to 5"),
    "hidden": _COUNT,
    "projection": (lambda width: width >= 0, "a whole number of at least 0"),
    "workers": (lambda count: count >= 0, "a whole number of at least 0"),
}


def check_spec(spec: TaskSpec, names: Mapping[str, Collection[str]]) -> None:
    """Refuse a spec with a wrong type, a value out of range or an unknown name.

    Parameters
    ----------
    spec : TaskSpec
        The settings.
    names : mapping of str to collection of str
        Valid names by field.

    Raises
    ------
    TaskError
        Naming the field, its value and what is allowed.
    """
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
