"""Sections of the run config that belong to no single method."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, PlainValidator

from ..methods.base import AtLeastOne, BelowOne, Count, NonNegative, Positive, Settings, Share, key
from ..tasks.spec import FOUND, NONE, STANDARD
from ..wire.versions import read_tags


class ScheduleSettings(Settings):
    """Learning rate by round."""

    section = "schedule"
    kind: Literal["constant", "step", "cosine"] = key("constant", "how the learning rate falls")
    every: AtLeastOne = key(10, "rounds per step")
    factor: Positive = key(0.5, "factor per step")
    rounds: Count = key(0, "rounds until cosine reaches 0; 0 means all")


AUTO: Final = "auto"


def _deadline(given: object) -> float | Literal["auto"]:
    if given == AUTO:
        return AUTO
    if isinstance(given, int | float) and type(given) is not bool and 0 < given < math.inf:
        return float(given)
    raise ValueError(f"use seconds, greater than 0, or {AUTO!r}")


class RoundSettings(Settings):
    """How long a round waits, and for whom."""

    section = "round"
    deadline: Annotated[float | Literal["auto"], PlainValidator(_deadline)] = key(
        600.0,
        "seconds that a client has to answer, or auto: learned from how long clients take, 600 at "
        "most",
    )
    min_replies: AtLeastOne = key(1, "a round with fewer replies is tried again")
    over_commit: NonNegative = key(
        0.0,
        "share of extra clients asked; the round does not wait for the slowest; more are "
        "asked where failures are likely",
    )
    give_up_after: NonNegative = key(600.0, "seconds without a successful round that end the run")
    question_deadline: Positive = key(
        60.0, "seconds that a client has to answer a question before training"
    )

    @property
    def longest(self) -> float:
        """The deadline; the longest of those to be learned."""
        return 600.0 if isinstance(self.deadline, str) else self.deadline


def _tags(text: str) -> str:
    read_tags(text)
    return text


class ClientsSettings(Settings):
    """Who may take part, and how often."""

    section = "clients"
    allowed: str = key(
        "", "names separated by commas, or a file with one per line; empty means all"
    )
    tags: Annotated[str, AfterValidator(_tags)] = key(
        "",
        "only nodes whose node config has at least one of these tags, separated by commas; "
        "empty means all",
    )
    at_most: NonNegative = key(
        0.0, "a client is chosen at most this many times as often as the average; 0 means no limit"
    )
    error_texts: bool = key(
        False,
        "devices send the texts of errors, which may quote data, besides type and place;"
        " for experiments, never with local-dp",
    )

    def names(self) -> list[str]:
        """Return the names of the clients that may take part; none if all may."""
        path = Path(self.allowed)
        listed = bool(self.allowed) and "," not in self.allowed and path.is_file()
        text = path.read_text(encoding="utf-8") if listed else self.allowed.replace(",", "\n")
        return [line.strip() for line in text.splitlines() if line.strip()]


class EarlyStopSettings(Settings):
    """When to end before the last round; 0 switches a rule off."""

    section = "early-stop"
    patience: Count = key(0, "evaluations without a better main metric that end the run")
    target: float = key(0.0, "value of the main metric that ends the run, such as 0.9")


class CheckpointSettings(Settings):
    """How often the run is saved and how many saves are kept."""

    section = "checkpoint"
    every: Count = key(1, "rounds between checkpoints; 0 saves only at the end")
    keep: AtLeastOne = key(2, "checkpoints to keep")


class OptimiserSettings(Settings):
    """The optimiser of the clients. `learning-rate`, `momentum` and `weight-decay` also apply."""

    section = "optimiser"
    name: str = key(
        "sgd",
        "sgd, adam, adamw, or your own module:attribute, called with the parameters and the "
        "learning rate",
    )
    clip_norm: NonNegative = key(0.0, "largest norm of a mini-batch's gradient; 0 means no limit")


def _known_scale(scale: str) -> str:
    if scale not in (NONE, STANDARD) and not scale.startswith(FOUND):
        raise ValueError(f"use {NONE} or {STANDARD}")
    return scale


class DataSettings(Settings):
    """The data, and how they are divided."""

    section = "data"
    path: str = key("", "file or folder with the data, for npz and others")
    kind: Literal[
        "auto", "classification", "multi-label", "regression", "segmentation", "next-token"
    ] = key("auto", "kind of problem of your own data; auto decides by the type of the targets")
    tokens: bool = key(False, "inputs are integers, such as token ids, and stay integers")
    input_columns: str = key("", "input columns of hf: tasks, with commas; empty means all others")
    target_column: str = key("", "target column of hf: tasks; empty means label, target or y")
    user_column: str = key("", "column with the owner of each sample, for partition natural")
    scale: Annotated[str, AfterValidator(_known_scale)] = key(
        NONE,
        "none, or standard: inputs get mean 0 and standard deviation 1 per feature or "
        "channel, by means and standard deviations that clients report before round 1",
    )
    num_classes: Count = key(0, "number of classes, or of model outputs; 0 counts them")
    validation_share: BelowOne = key(
        0.2, "share of the test data that the server keeps as its validation set"
    )
    client_test_share: BelowOne = key(
        0.0, "share of each client's data held out for testing on the client"
    )
    cache_dir: str = key("", "where features and partitions are cached")


class SplitSettings(Settings):
    """How data are spread over clients."""

    section = "split"
    alpha: Positive = key(0.3, "concentration of dirichlet; small is uneven")
    shards_per_client: AtLeastOne = key(2, "for partition shards")
    classes_per_client: AtLeastOne = key(2, "for partition pathological")


class GroupsSettings(Settings):
    """Groups of clients with different data, planted for experiments."""

    section = "groups"
    kind: Literal["none", "rotation", "label-permutation", "affine-shift"] = key(
        "none", "how the data of the groups differ"
    )
    count: AtLeastOne = key(2, "number of groups, also for partition class-groups")


class CorruptionSettings(Settings):
    """How much of a client's data is corrupted, and how badly."""

    section = "corruption"
    rate: Share = key(0.4, "share of the samples that noise corrupts")
    clients: Share = key(0.0, "share of the clients that train on random labels, on purpose")
    removed: Share = key(
        0.5,
        "share of the classes that open-set noise takes out of the task; with a rate of 1 all"
        " their samples stay, wrongly labelled",
    )


class NetSettings(Settings):
    """Sizes of the small built-in models."""

    section = "net"
    hidden: AtLeastOne = key(64, "width of mlp")


class FineTuneSettings(Settings):
    """Training of the aggregated model on the server's own data."""

    section = "fine-tune"
    epochs: Count = key(0, "epochs on the validation set after aggregation")


class PersonaliseSettings(Settings):
    """Personal models: parts that stay on a client, and training before it evaluates."""

    section = "personalise"
    epochs: Count = key(0, "epochs of fine-tuning before a client evaluates")
    keep: Literal["none", "head", "norms"] = key(
        "none",
        "parts of the model that stay on the client: the head (FedPer), or normalisation layers "
        "(FedBN); they are not aggregated, so only tests on clients judge the model",
    )


class QuarantineSettings(Settings):
    """Limits above which replies are set aside."""

    section = "quarantine"
    norm_factor: Positive = key(5.0, "set aside updates above this many times the usual norm")
    count_factor: Positive = key(100.0, "set aside claims above this many times the usual samples")
    weight_factor: NonNegative = key(
        5.0,
        "a client counts for at most this many times the usual number of samples; 0 means no limit",
    )


class LocalSettings(Settings):
    """The local engine: how clients of one process are trained."""

    section = "local"
    trainer: Literal["auto", "stack", "threads", "serial"] = key(
        "auto", "all clients at once, in threads, or one by one; auto decides by the model"
    )
    threads: Count = key(0, "threads to train in; 0 means one per core")
    check_wire: bool = key(False, "serialise every message as a transport would")


class DevicesSettings(Settings):
    """Devices on the local engine's simulated clock."""

    section = "devices"
    availability: str = key(
        "always", 'when clients are online: "always", "day-night", or an .npz file with a trace'
    )
    slow: bool = key(False, "replies take simulated time")
    seconds_per_sample: Positive = key(0.02, "median time to train on a sample once")
    bytes_per_second: Positive = key(1e6, "median speed of the connection")
    spread: NonNegative = key(
        1.0, "standard deviation of the logarithm of both; 0 makes devices alike"
    )
