"""Sections of the run config that belong to no single method."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator

from ..methods.base import (
    AtLeastOne,
    BelowOne,
    Count,
    NonNegative,
    Positive,
    Settings,
    Share,
)
from ..tasks.spec import FOUND, NONE, STANDARD
from ..wire.tags import read_tags


class Schedule(Settings):
    """Learning rate by round."""

    section = "schedule"
    kind: Literal["constant", "step", "cosine"] = Field(
        default="constant", description="how the learning rate falls"
    )
    every: AtLeastOne = Field(default=10, description="rounds per step")
    factor: Positive = Field(default=0.5, description="factor per step")
    rounds: Count = Field(default=0, description="rounds until cosine reaches 0; 0 means all")


AUTO: Final = "auto"


def _deadline(given: object) -> float | Literal["auto"]:
    if given == AUTO:
        return AUTO
    if isinstance(given, int | float) and type(given) is not bool and 0 < given < math.inf:
        return float(given)
    raise ValueError(f"use seconds, greater than 0, or {AUTO!r}")


class Round(Settings):
    """How long a round waits, and for whom."""

    section = "round"
    deadline: Annotated[float | Literal["auto"], PlainValidator(_deadline)] = Field(
        default=600.0,
        description="seconds that a client has to answer, or auto: learned from how long clients "
        "take, 600 at most",
    )
    min_replies: AtLeastOne = Field(
        default=1, description="a round with fewer replies is tried again"
    )
    over_commit: NonNegative = Field(
        default=0.0,
        description="share of extra clients asked; the round does not wait for the slowest; more "
        "are asked where failures are likely",
    )
    give_up_after: NonNegative = Field(
        default=600.0, description="seconds without a successful round that end the run"
    )
    roll_back_after: Count = Field(
        default=3,
        description="failures of a round, with every reply set aside, after which the run goes "
        "back to the previous checkpoint; 0 means never",
    )
    question_deadline: Positive = Field(
        default=60.0, description="seconds that a client has to answer a question before training"
    )
    poll: Positive = Field(default=0.2, description="seconds between checks for replies")

    @property
    def longest(self) -> float:
        """The deadline; the longest of those to be learned."""
        return 600.0 if isinstance(self.deadline, str) else self.deadline


def _tags(text: str) -> str:
    read_tags(text)
    return text


class Clients(Settings):
    """Who may take part, and how often."""

    section = "clients"
    allowed: str = Field(
        default="",
        description="names separated by commas, or a file with one per line; empty means all",
    )
    tags: Annotated[str, AfterValidator(_tags)] = Field(
        default="",
        description="only nodes whose node config has at least one of these tags, separated by "
        "commas; empty means all",
    )
    at_most: NonNegative = Field(
        default=0.0,
        description="a client is chosen at most this many times as often as the average; 0 means "
        "no limit",
    )
    error_texts: bool = Field(
        default=False,
        description="devices send the texts of errors, which may quote data, and not only type and "
        "place; for experiments, never with local-dp",
    )

    def names(self) -> list[str]:
        """Return the names of the clients that may take part; none if all may."""
        path = Path(self.allowed)
        listed = bool(self.allowed) and "," not in self.allowed and path.is_file()
        text = path.read_text(encoding="utf-8") if listed else self.allowed.replace(",", "\n")
        return [line.strip() for line in text.splitlines() if line.strip()]


class EarlyStop(Settings):
    """When to end before the last round; 0 switches a rule off."""

    section = "early-stop"
    patience: Count = Field(
        default=0, description="evaluations without a better main metric that end the run"
    )
    target: float = Field(
        default=0.0, description="value of the main metric that is good enough, such as 0.9"
    )


class Checkpoint(Settings):
    """How often the run is saved and how many saves are kept."""

    section = "checkpoint"
    every: Count = Field(
        default=1, description="rounds between checkpoints; 0 saves only at the end"
    )
    keep: AtLeastOne = Field(default=2, description="checkpoints to keep")


class Optimiser(Settings):
    """How clients take a step. `learning-rate`, `momentum` and `weight-decay` also apply."""

    section = "optimiser"
    name: str = Field(
        default="sgd",
        description="sgd, adam, adamw, or your own module:attribute, called with the parameters "
        "and the learning rate",
    )
    clip_norm: NonNegative = Field(
        default=0.0, description="largest norm of a mini-batch's gradient; 0 means no limit"
    )
    accumulate: AtLeastOne = Field(default=1, description="mini-batches per step")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description='"bfloat16" runs the forward pass in mixed precision'
    )


def _known_scale(scale: str) -> str:
    if scale not in (NONE, STANDARD) and not scale.startswith(FOUND):
        raise ValueError(f"use {NONE} or {STANDARD}")
    return scale


class Data(Settings):
    """Where data come from and what is set aside."""

    section = "data"
    path: str = Field(default="", description="file or folder with the data, for npz and others")
    kind: Literal[
        "auto", "classification", "multi-label", "regression", "segmentation", "next-token"
    ] = Field(
        default="auto",
        description="kind of problem of your own data; auto goes by the type of the targets",
    )
    tokens: bool = Field(
        default=False, description="inputs are integers, such as token ids, and stay integers"
    )
    workers: Count = Field(
        default=0, description="processes that read a torch Dataset ahead; 0 means none"
    )
    input_columns: str = Field(
        default="", description="input columns of hf: tasks, with commas; empty means all others"
    )
    target_column: str = Field(
        default="", description="target column of hf: tasks; empty means label, target or y"
    )
    user_column: str = Field(
        default="", description="column that says whose sample it is, for partition natural"
    )
    scale: Annotated[str, AfterValidator(_known_scale)] = Field(
        default=NONE,
        description="none, or standard: inputs get mean 0 and standard deviation 1 per feature or "
        "channel, using means and spreads that clients report before round 1",
    )
    num_classes: Count = Field(
        default=0, description="number of classes, or of model outputs; 0 counts them"
    )
    validation_share: BelowOne = Field(
        default=0.2,
        description="share of the test data that the server keeps as its validation set",
    )
    client_test_share: BelowOne = Field(
        default=0.0, description="share of each client's data held out for testing on the client"
    )
    synthetic_alpha: NonNegative = Field(
        default=1.0, description="how much the models of synthetic's clients differ"
    )
    synthetic_beta: NonNegative = Field(
        default=1.0, description="how much the inputs of synthetic's clients differ"
    )
    cache_dir: str = Field(default="", description="where features and partitions are cached")


class Split(Settings):
    """How data are spread over clients."""

    section = "split"
    alpha: Positive = Field(default=0.3, description="concentration of dirichlet; small is uneven")
    shards_per_client: AtLeastOne = Field(default=2, description="for partition shards")
    classes_per_client: AtLeastOne = Field(default=2, description="for partition pathological")


class Groups(Settings):
    """Groups of clients with different data, planted to see whether they are found."""

    section = "groups"
    kind: Literal["none", "rotation", "label-permutation", "affine-shift"] = Field(
        default="none", description="how the data of the groups differ"
    )
    count: AtLeastOne = Field(
        default=2, description="number of groups, also for partition class-groups"
    )
    strength: NonNegative = Field(
        default=0.5, description="how far affine-shift stretches and moves the inputs of a group"
    )


class Corruption(Settings):
    """How much of a client's data is corrupted, and how badly."""

    section = "corruption"
    rate: Share = Field(default=0.4, description="share of the samples that noise corrupts")
    severity: Annotated[int, Field(ge=1, le=5)] = Field(
        default=5, description="severity of attribute noise"
    )
    kinds: str = Field(default="all", description="kinds of attribute noise, separated by commas")
    clients: Share = Field(
        default=0.0, description="share of the clients that train on random labels, on purpose"
    )
    removed: Share = Field(
        default=0.5,
        description="share of the classes that open-set noise takes out of the task; with a rate "
        "of 1 all their samples stay, wrongly labelled",
    )


class Net(Settings):
    """Sizes of the small built-in models."""

    section = "net"
    hidden: AtLeastOne = Field(default=64, description="width of mlp")


class FineTune(Settings):
    """Training of the aggregated model on the server's own data."""

    section = "fine-tune"
    epochs: Count = Field(default=0, description="epochs on the validation set after aggregation")


class Personalise(Settings):
    """What makes a model a client's own: parts that it keeps, and training before it evaluates."""

    section = "personalise"
    epochs: Count = Field(default=0, description="epochs of fine-tuning before a client evaluates")
    keep: Literal["none", "head", "norms"] = Field(
        default="none",
        description="what of the model clients keep to themselves: the head (FedPer), or "
        "normalisation layers (FedBN); it is not aggregated, so judge by what clients evaluate",
    )


class Quarantine(Settings):
    """Which replies are absurd and set aside."""

    section = "quarantine"
    norm_factor: Positive = Field(
        default=5.0, description="set aside updates above this many times the usual norm"
    )
    count_factor: Positive = Field(
        default=100.0, description="set aside claims above this many times the usual samples"
    )
    weight_factor: NonNegative = Field(
        default=5.0,
        description="a client counts for at most this many times the usual number of samples; "
        "0 means no limit",
    )


class Local(Settings):
    """The local engine: how clients of one process are trained."""

    section = "local"
    trainer: Literal["auto", "stack", "threads", "serial"] = Field(
        default="auto",
        description="all clients at once, in threads, or one by one; auto decides by the model",
    )
    threads: Count = Field(default=0, description="threads to train in; 0 means one per core")
    check_wire: bool = Field(
        default=False, description="serialise every message as a transport would"
    )


class Devices(Settings):
    """Devices on the local engine's simulated clock."""

    section = "devices"
    availability: str = Field(
        default="always",
        description='when clients are online: "always", "day-night", or an .npz file with a trace',
    )
    slow: bool = Field(default=False, description="replies take simulated time")
    seconds_per_sample: Positive = Field(
        default=0.02, description="median time to train on a sample once"
    )
    bytes_per_second: Positive = Field(default=1e6, description="median speed of the connection")
    spread: NonNegative = Field(
        default=1.0,
        description="standard deviation of the logarithm of both; 0 makes devices alike",
    )
