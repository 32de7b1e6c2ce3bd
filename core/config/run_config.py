"""The run config as typed models: what every run can set, and the settings of all methods."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import create_model

from ..methods.base import AtLeastOne, BelowOne, Count, NonNegative, Positive, Settings, Share, key
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

    strategy: str = key("fedavg", "a preset for empty axes; forager run takes forager by default")
    client_selector: str = key("random", "which clients train")
    data_selector: str = key("full", "which samples clients train on")
    work: str = key("same", "how long clients train")
    cohorts: str = key("none", "which clients share a model")
    similarity: str = key("none", "how clients are compared")
    aggregator: str = key("fedavg", "how updates become a model")
    objective: str = key("sgd", "what clients minimise")
    uplink: str = key("dense", "what clients send")
    downlink: Literal["whole", "changes"] = key(
        "whole",
        "what clients are sent: whole models, or only the changes since the last one, which "
        "they then keep; the result is the same",
    )
    privacy: str = key("none", "where noise is added")
    weighting: str = key("examples", "weights of clients in the mean")
    serving: str = key("model", "which model a client uses")
    task: str = key(
        "digits",
        "digits, blobs, synthetic, fashion-mnist, cifar10, cifar100, 20news, diabetes "
        "(regression), poems (next character), shapes (segmentation), npz, hf:<name or path>,"
        " or your own module:attribute",
    )
    partition: str = key("dirichlet", "iid, dirichlet, shards, pathological, class-groups, natural")
    noise: str = key("none", "none, closed-set, open-set, attribute")
    model: str = key(
        "auto",
        "auto (suits the task), softmax, mlp, cnn, small-cnn, lenet, cnn1d, dnn, resnet18, "
        "resnet50, vgg16, segmenter, char-gru, frozen:efficientnet-lite0, or your own "
        "module:attribute",
    )
    metrics: str = key(
        "",
        "metrics of models, separated by commas, the deciding one first: "
        "accuracy, macro-f1, balanced-accuracy, auc, mean-iou, mae, rmse, r2, perplexity or "
        "loss, class-recall (one per class); empty means the task's own",
    )
    device: str = key(
        "auto",
        "auto (a GPU if there is one), cpu, cuda, cuda:N or mps; a node's own config overrides it",
    )

    num_server_rounds: Count = key(10, "rounds")
    num_clients: AtLeastOne = key(
        10, "clients on the local engine and in `make run`; elsewhere all connected"
    )
    fraction_train: Share = key(0.5, "share of the clients that train per round")
    clients_per_round: Count = key(0, "clients that train per round; 0 uses fraction-train")
    fraction_evaluate: Share = key(
        0.0, "share of the clients that test the model on their own data"
    )
    evaluate_every: AtLeastOne = key(1, "rounds between two evaluations")
    leave_one_out: bool = key(
        False,
        "value each update by the server's loss without it (on its validation set)",
    )
    local_epochs: AtLeastOne = key(1, "passes over a client's data per round")
    local_steps: Count = key(0, "mini-batches per round, instead of epochs; 0 uses local-epochs")
    batch_size: AtLeastOne = key(16, "samples per mini-batch")
    learning_rate: Positive = key(0.1, "learning rate of the clients")
    momentum: BelowOne = key(0.0, "momentum of the clients' SGD")
    weight_decay: NonNegative = key(0.0, "weight decay of the clients' SGD")
    seed: Count = key(0, "the same seed gives the same clients and mini-batches")
    output_dir: str = key("runs", "where run folders go, as the ServerApp sees it")
    run_name: str = key("", "name of the run folder; the time by default")
    resume_from: str = key(
        "", "run folder or checkpoint file to resume from; with a model file a new run begins"
    )
    report: bool = key(True, "write report.html at the end")
    callbacks: str = key(
        "",
        "mlflow, wandb, tensorboard, prometheus, or your own module:attribute; several are "
        "separated by commas",
    )

    schedule: sections.ScheduleSettings = sections.ScheduleSettings()
    round: sections.RoundSettings = sections.RoundSettings()
    clients: sections.ClientsSettings = sections.ClientsSettings()
    early_stop: sections.EarlyStopSettings = sections.EarlyStopSettings()
    checkpoint: sections.CheckpointSettings = sections.CheckpointSettings()
    optimiser: sections.OptimiserSettings = sections.OptimiserSettings()
    data: sections.DataSettings = sections.DataSettings()
    split: sections.SplitSettings = sections.SplitSettings()
    groups: sections.GroupsSettings = sections.GroupsSettings()
    corruption: sections.CorruptionSettings = sections.CorruptionSettings()
    net: sections.NetSettings = sections.NetSettings()
    fine_tune: sections.FineTuneSettings = sections.FineTuneSettings()
    personalise: sections.PersonaliseSettings = sections.PersonaliseSettings()
    quarantine: sections.QuarantineSettings = sections.QuarantineSettings()
    local: sections.LocalSettings = sections.LocalSettings()
    devices: sections.DevicesSettings = sections.DevicesSettings()

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
    """Write nested tables as dotted keys."""
    result: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            result.update(flattened(value, f"{prefix}{name}."))
        else:
            result[f"{prefix}{name}"] = value
    return result
