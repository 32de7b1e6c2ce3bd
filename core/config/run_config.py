"""The run config, read once into typed models.

Flower hands an app a flat dict of scalars (``{"learning-rate": 0.1, "top-k.density": 0.1, ...}``)
and checks neither types nor values. :func:`read_config` does, and collects all that is wrong into
one :class:`ConfigError`.
"""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ..methods.registry import AXES, available
from ..tasks.errors import CONFIG_KEYS
from ..tasks.spec import TaskSpec
from .combinations import method_problems
from .presets import AXIS_DEFAULTS, PRESETS, fill_axes
from .sections import (
    AtLeastOne,
    Cohort,
    Coreset,
    Count,
    Devices,
    Dp,
    FineTune,
    Groups,
    Ios,
    Moon,
    NonNegative,
    Ode,
    Personalise,
    Positive,
    Share,
    Stream,
)
from .sections import Section as _Section

Scalar = int | float | bool | str


class ConfigError(ValueError):
    """The run config is wrong; the text says which key, which value and what is allowed."""


class Schedule(_Section):
    """Learning rate by round."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    every: AtLeastOne = 10
    factor: Positive = 0.5
    rounds: Count = 0


class Round(_Section):
    """How long a round waits, and for whom."""

    deadline: Positive = 600.0
    min_replies: AtLeastOne = 1
    over_commit: NonNegative = 0.0
    give_up_after: NonNegative = 600.0
    poll: Positive = 0.2


class EarlyStop(_Section):
    """When to end before the last round; 0 switches a rule off."""

    patience: Count = 0
    min_delta: NonNegative = 0.0
    target: Share = 0.0


class Checkpoint(_Section):
    """How often the run is saved and how many saves are kept."""

    every: Count = 1
    keep: AtLeastOne = 2


class Data(_Section):
    """Where data come from and what is set aside."""

    path: str = ""
    num_classes: Count = 0
    validation_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    client_test_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    synthetic_alpha: NonNegative = 1.0
    synthetic_beta: NonNegative = 1.0
    cache_dir: str = ""


class Split(_Section):
    """How data are spread over clients."""

    alpha: Positive = 0.3
    shards_per_client: AtLeastOne = 2
    classes_per_client: AtLeastOne = 2


class Corruption(_Section):
    """How much of a client's data is spoilt, and how badly."""

    rate: Share = 0.4
    severity: Annotated[int, Field(ge=1, le=5)] = 5
    kinds: str = "all"


class Net(_Section):
    """Sizes of the small built-in models."""

    hidden: AtLeastOne = 64


class Prox(_Section):
    """The proximal objective."""

    mu: NonNegative = 0.01


class TopK(_Section):
    """The sparse uplink."""

    density: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    values: Literal["float32", "float16"] = "float32"
    error_feedback: bool = False


class Summary(_Section):
    """What clients tell before they are chosen, and how."""

    mode: Literal["query", "piggyback"] = "query"
    batches: AtLeastOne = 4
    power: Annotated[float, Field(ge=1.0)] = 4.0
    form: Literal["unit", "printed"] = "unit"
    ask_at_most: Count = 0


class CosAge(_Section):
    """CosAge's cooldown."""

    silent_ratio: Share = 0.0


class PowerOfChoice(_Section):
    """How many candidates are asked for their loss; 0 for twice as many as are chosen."""

    candidates: Count = 0


class Oort(_Section):
    """How much Oort explores, how it treats the slow, and who has done enough (0: nobody ever)."""

    exploration: Share = 0.9
    least_exploration: Share = 0.2
    slow_penalty: NonNegative = 2.0
    blacklist_after: Count = 10


class Aggregation(_Section):
    """Settings of the aggregators; a learning rate of 0 means Flower's default."""

    learning_rate: NonNegative = 0.0
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta_1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta_2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    tau: Positive = 1e-3
    q: NonNegative = 0.1
    trim: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.2
    malicious: Count = 1
    keep: AtLeastOne = 5


class Quarantine(_Section):
    """What is absurd: so many times the usual size of an update, or number of samples."""

    norm_factor: Positive = 100.0
    count_factor: Positive = 100.0


class Local(_Section):
    """The local engine: how clients of one process are trained."""

    trainer: Literal["auto", "stack", "threads", "serial"] = "auto"
    threads: Count = 0
    check_wire: bool = False


class RunConfig(_Section):
    """Everything a run can be told. Axes hold resolved names: never empty."""

    strategy: str = "fedavg"
    client_selector: str = "random"
    data_selector: str = "full"
    cohorts: str = "none"
    similarity: str = "none"
    aggregator: str = "fedavg"
    objective: str = "sgd"
    uplink: str = "dense"
    privacy: str = "none"
    weighting: str = "examples"
    task: str = "digits"
    partition: str = "dirichlet"
    noise: str = "none"
    model: str = "softmax"

    num_server_rounds: Count = 10
    num_clients: AtLeastOne = 10
    fraction_train: Share = 0.5
    clients_per_round: Count = 0
    fraction_evaluate: Share = 0.0
    evaluate_every: AtLeastOne = 1
    local_epochs: AtLeastOne = 1
    local_steps: Count = 0
    batch_size: AtLeastOne = 16
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    weight_decay: NonNegative = 0.0
    seed: Count = 0
    output_dir: str = "runs"
    run_name: str = ""
    resume_from: str = ""
    tensorboard: bool = False
    report: bool = True

    schedule: Schedule = Schedule()
    round: Round = Round()
    early_stop: EarlyStop = EarlyStop()
    checkpoint: Checkpoint = Checkpoint()
    data: Data = Data()
    split: Split = Split()
    groups: Groups = Groups()
    corruption: Corruption = Corruption()
    net: Net = Net()
    prox: Prox = Prox()
    moon: Moon = Moon()
    coreset: Coreset = Coreset()
    fine_tune: FineTune = FineTune()
    top_k: TopK = TopK()
    summary: Summary = Summary()
    cosage: CosAge = CosAge()
    power_of_choice: PowerOfChoice = PowerOfChoice()
    oort: Oort = Oort()
    stream: Stream = Stream()
    ode: Ode = Ode()
    cohort: Cohort = Cohort()
    ios: Ios = Ios()
    dp: Dp = Dp()
    personalise: Personalise = Personalise()
    aggregation: Aggregation = Aggregation()
    quarantine: Quarantine = Quarantine()
    local: Local = Local()
    devices: Devices = Devices()

    def task_spec(self) -> TaskSpec:
        """Return what ``tasks`` needs to know of this config."""
        flat: dict[str, Any] = self.flat()
        names = [field.name for field in fields(TaskSpec)]
        return TaskSpec(**{name: flat[CONFIG_KEYS.get(name, name)] for name in names})

    def axes(self) -> dict[str, str]:
        """Return the resolved value of every axis."""
        return {axis: getattr(self, axis.replace("-", "_")) for axis in AXIS_DEFAULTS}

    def flat(self) -> dict[str, Scalar]:
        """Return the resolved config as the flat, dotted dict that it came from."""
        return flattened(self.model_dump(by_alias=True))


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Write nested tables as dotted keys.

    Examples
    --------
    >>> flattened({"seed": 1, "cosage": {"silent-ratio": 0.1}})
    {'seed': 1, 'cosage.silent-ratio': 0.1}
    """
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            result.update(flattened(value, f"{prefix}{key}."))
        else:
            result[f"{prefix}{key}"] = value
    return result


def _nest(flat: Mapping[str, Scalar]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = value
    return tree


def nearest(name: str, names: list[str]) -> str:
    """Return a hint naming the closest valid name, or nothing.

    >>> nearest("fedavgg", ["fedavg", "fedyogi"])
    "; did you mean 'fedavg'?"
    """
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _unknown_keys(flat: Mapping[str, Scalar]) -> list[str]:
    known = list(default_config())
    return [
        f"{key} = {value!r}: unknown key{nearest(key, known)}"
        for key, value in flat.items()
        if key not in known
    ]


def _wrong_names(axes: Mapping[str, str]) -> list[str]:
    problems = []
    for axis, names in AXES.items():
        value = axes[axis]
        allowed = ", ".join(available(axis))
        if value not in names:
            hint = nearest(value, list(names))
            problems.append(f"{axis} = {value!r}: unknown; allowed are {allowed}{hint}")
    return problems


def _impossible(config: RunConfig) -> list[str]:
    """Return what no single key gets wrong but several do together."""
    problems = []
    everyone = config.client_selector == "all"
    if not everyone and config.clients_per_round == 0 and config.fraction_train == 0:
        problems.append("fraction-train = 0.0: nobody would train; give it or clients-per-round")
    share = 1.0 if everyone else config.fraction_train
    asked = (0 if everyone else config.clients_per_round) or round(share * config.num_clients)
    asked = max(1, min(asked, config.num_clients))
    malicious = config.aggregation.malicious
    # Krum needs n >= 2 f + 3 (Blanchard et al., 2017), Bulyan 4 f + 3 (El Mhamdi et al., 2018).
    least = {"krum": 2, "multi-krum": 2, "bulyan": 4}.get(config.aggregator, 0) * malicious + 3
    if config.aggregator in ("krum", "multi-krum", "bulyan") and asked < least:
        problems.append(
            f"aggregation.malicious = {malicious}: {config.aggregator} then needs {least} clients "
            f"a round, {asked} are asked (clients-per-round, or fraction-train of num-clients)"
        )
    if config.round.min_replies > asked:
        problems.append(
            f"round.min-replies = {config.round.min_replies}: only {asked} are asked in a round"
        )
    return problems + method_problems(config)


def _explain(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        lines.append(f"{key} = {item['input']!r}: {item['msg'].lower()}")
    return lines


def _error(problems: list[str]) -> ConfigError:
    return ConfigError("run config: " + "\n            ".join(problems))


def read_config(flat: Mapping[str, Scalar]) -> RunConfig:
    """Return the typed config of Flower's flat run config, presets filled in.

    >>> read_config({"strategy": "fedprox"}).objective
    'prox'
    >>> read_config({"learning-rate": "fast"})
    Traceback (most recent call last):
    forager...ConfigError: run config: learning-rate = 'fast': input should be a valid ...
    >>> read_config({"strategy": "cosag"})
    Traceback (most recent call last):
    forager...ConfigError: run config: strategy = 'cosag': ... did you mean 'cosage'?
    """
    # True, 1 and 1.0 are equal, but not the same setting: the type is part of what is cached.
    return _read_cached(tuple(sorted((key, value, type(value)) for key, value in flat.items())))


@lru_cache(maxsize=16)
def _read_cached(items: tuple[tuple[str, Scalar, type], ...]) -> RunConfig:
    flat: dict[str, Any] = {key: value for key, value, _ in items}
    problems = _unknown_keys(flat)
    flat = {key: value for key, value in flat.items() if key in default_config()}
    for axis in ("strategy", *AXIS_DEFAULTS):
        if not isinstance(flat.get(axis, ""), str):
            problems.append(f"{axis} = {flat.pop(axis)!r}: must be a text")
    strategy = flat.get("strategy") or "fedavg"
    if strategy not in PRESETS:
        allowed, hint = ", ".join(PRESETS), nearest(strategy, list(PRESETS))
        problems.append(f"strategy = {strategy!r}: unknown; allowed are {allowed}{hint}")
        strategy = "fedavg"
    axes = fill_axes(strategy, {axis: flat.get(axis, "") for axis in AXIS_DEFAULTS})
    problems += _wrong_names(axes)
    try:
        config = RunConfig.model_validate(_nest({**flat, **axes, "strategy": strategy}))
    except ValidationError as error:
        raise _error([*problems, *_explain(error)]) from None
    problems = problems or _impossible(config)
    if problems:
        raise _error(problems)
    return config


@lru_cache(maxsize=1)
def default_config() -> dict[str, Scalar]:
    """Return every key with its default: axes are empty, the preset fills them.

    >>> defaults = default_config()
    >>> defaults["strategy"], defaults["aggregator"], defaults["top-k.density"]
    ('fedavg', '', 0.1)
    """
    return {**RunConfig().flat(), **dict.fromkeys(AXIS_DEFAULTS, "")}
