"""The run config as typed models: what every run can set, and the settings of all methods."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field, create_model

from ..methods.base import AtLeastOne, BelowOne, Count, NonNegative, Positive, Settings, Share
from ..methods.catalogue import all_settings, axis_defaults
from ..tasks.errors import CONFIG_KEYS, SayableError
from ..tasks.spec import TaskSpec
from . import sections

Scalar = int | float | bool | str
S = TypeVar("S", bound=Settings)

# Values of axes that neither the user nor the preset sets.
AXIS_DEFAULTS: dict[str, str] = {
    **axis_defaults(),
    "task": "digits",
    "partition": "dirichlet",
    "noise": "none",
    "model": "auto",
    "downlink": "whole",
}


class ConfigError(SayableError):
    """The run config is wrong; the text says which key, which value and what is allowed."""


class General(Settings):
    """Everything a run can set but the settings of methods. Axes hold resolved names."""

    strategy: str = Field(
        default="fedavg", description="a preset: it fills in the axes that are left empty"
    )
    client_selector: str = Field(default="random", description="who trains")
    data_selector: str = Field(default="full", description="on what")
    work: str = Field(default="same", description="for how long")
    cohorts: str = Field(default="none", description="with whom")
    similarity: str = Field(default="none", description="what makes clients alike")
    aggregator: str = Field(default="fedavg", description="how updates become a model")
    objective: str = Field(default="sgd", description="what clients minimise")
    uplink: str = Field(default="dense", description="what clients send")
    downlink: Literal["whole", "changes"] = Field(
        default="whole",
        description="what clients are sent: whole models, or only the changes since the last one, "
        "which they then keep; the result is the same",
    )
    privacy: str = Field(default="none", description="who adds noise")
    weighting: str = Field(default="examples", description="how much a client counts")
    serving: str = Field(default="model", description="what a client gets in the end")
    task: str = Field(
        default="digits",
        description="digits, blobs, synthetic, fashion-mnist, cifar10, cifar100, 20news, diabetes "
        "(regression), poems (next character), shapes (segmentation), npz, hf:<name or path>, or "
        "your own module:attribute",
    )
    partition: str = Field(
        default="dirichlet",
        description="iid, dirichlet, shards, pathological, class-groups, natural",
    )
    noise: str = Field(default="none", description="none, closed-set, open-set, attribute")
    model: str = Field(
        default="auto",
        description="auto (suits the task), softmax, mlp, cnn, small-cnn, lenet, cnn1d, dnn, "
        "resnet18, resnet50, vgg16, segmenter, char-gru, frozen:efficientnet-lite0, or your own "
        "module:attribute",
    )
    metrics: str = Field(
        default="",
        description="what models are judged by, separated by commas, the one that decides "
        "first: accuracy, macro-f1, balanced-accuracy, auc, mean-iou, mae, rmse, r2, perplexity or "
        "loss, class-recall (one per class); empty means the task's own",
    )
    device: str = Field(
        default="auto",
        description="auto (a GPU if there is one), cpu, cuda, cuda:N or mps; a node's own config "
        "overrides it",
    )

    num_server_rounds: Count = Field(default=10, description="rounds")
    num_clients: AtLeastOne = Field(
        default=10,
        description="clients on the local engine and in `make run`; elsewhere all connected",
    )
    fraction_train: Share = Field(
        default=0.5, description="share of the clients that train per round"
    )
    clients_per_round: Count = Field(
        default=0, description="clients that train per round; 0 uses fraction-train"
    )
    fraction_evaluate: Share = Field(
        default=0.0, description="share of the clients that test the model on their own data"
    )
    evaluate_every: AtLeastOne = Field(default=1, description="rounds between two evaluations")
    local_epochs: AtLeastOne = Field(default=1, description="passes over a client's data per round")
    local_steps: Count = Field(
        default=0, description="mini-batches per round, instead of epochs; 0 uses local-epochs"
    )
    batch_size: AtLeastOne = Field(default=16, description="samples per mini-batch")
    learning_rate: Positive = Field(default=0.1, description="learning rate of the clients")
    momentum: BelowOne = Field(default=0.0, description="momentum of the clients' SGD")
    weight_decay: NonNegative = Field(default=0.0, description="weight decay of the clients' SGD")
    seed: Count = Field(
        default=0, description="the same seed gives the same clients and mini-batches"
    )
    output_dir: str = Field(
        default="runs", description="where run folders go, as the ServerApp sees it"
    )
    run_name: str = Field(default="", description="name of the run folder; the time by default")
    resume_from: str = Field(default="", description="run folder or checkpoint file to resume from")
    report: bool = Field(default=True, description="write report.html at the end")
    callbacks: str = Field(
        default="",
        description="mlflow, wandb, tensorboard, prometheus, or your own module:attribute; several "
        "are separated by commas",
    )

    schedule: sections.Schedule = sections.Schedule()
    round: sections.Round = sections.Round()
    clients: sections.Clients = sections.Clients()
    early_stop: sections.EarlyStop = sections.EarlyStop()
    checkpoint: sections.Checkpoint = sections.Checkpoint()
    optimiser: sections.Optimiser = sections.Optimiser()
    data: sections.Data = sections.Data()
    split: sections.Split = sections.Split()
    groups: sections.Groups = sections.Groups()
    corruption: sections.Corruption = sections.Corruption()
    net: sections.Net = sections.Net()
    fine_tune: sections.FineTune = sections.FineTune()
    personalise: sections.Personalise = sections.Personalise()
    quarantine: sections.Quarantine = sections.Quarantine()
    local: sections.Local = sections.Local()
    devices: sections.Devices = sections.Devices()

    # What is asked for every client of every round is computed once: settings do not change.

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self._flat.items()))

    def __getitem__(self, kind: type[S]) -> S:
        """Return the settings of a method."""
        settings: S = self.__dict__[_FIELDS[kind]]
        return settings

    def task_spec(self) -> TaskSpec:
        """Return what ``tasks`` needs to know of this config."""
        return self._task_spec

    @cached_property
    def _task_spec(self) -> TaskSpec:
        flat: dict[str, Any] = self.flat()
        if self.objective != "moon":
            flat["moon.projection"] = 0  # a part of the model, but of no other method's
        names = [field.name for field in fields(TaskSpec)]
        return TaskSpec(**{name: flat[CONFIG_KEYS.get(name, name)] for name in names})

    def axes(self) -> Mapping[str, str]:
        """Return the resolved value of every axis."""
        return self._axes

    @cached_property
    def _axes(self) -> Mapping[str, str]:
        return {axis: getattr(self, axis.replace("-", "_")) for axis in AXIS_DEFAULTS}

    def participation(self) -> tuple[int, float]:
        """Return how many clients train per round: a number, or if that is 0 a share of all."""
        if self.client_selector == "all":
            return 0, 1.0
        return self.clients_per_round, self.fraction_train

    def flat(self) -> dict[str, Scalar]:
        """Return the resolved config as the flat, dotted dict that it came from."""
        return dict(self._flat)

    @cached_property
    def _flat(self) -> dict[str, Scalar]:
        return flattened(self.model_dump(by_alias=True))


_FIELDS = {kind: kind.section.replace("-", "_") for kind in all_settings()}

if TYPE_CHECKING:

    class RunConfig(General):
        """A run config: general settings, and by ``config[CosAge]`` those of a method."""

else:
    RunConfig = create_model(
        "RunConfig",
        __base__=General,
        __module__=__name__,
        **{name: (kind, kind()) for kind, name in _FIELDS.items()},
    )


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
