"""Sections of the run config: the base of all, and those of methods that have many settings."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Settings under one prefix: no other keys, no other types, nothing infinite."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class Moon(Section):
    """MOON's contrastive term: its weight, and the temperature of its similarities."""

    mu: NonNegative = 1.0
    temperature: Positive = 0.5


class FineTune(Section):
    """Epochs that the server trains the aggregated model on its validation set; 0 for none."""

    epochs: Count = 0


class Coreset(Section):
    """Which few samples a client trains on, and how they are chosen.

    Parameters
    ----------
    budget : float
        Samples that a client trains on: up to 1 a share of its data, above 1 a number.
    every : int
        A coreset that is so many rounds old is chosen anew.
    first_round : int
        Rounds that train on a random subset before the first choice; 0 chooses from the start.
    rule : str
        How "gcfl" and "gradmatch" take the next sample: "distance" (the gradient nearest to what
        is still missing), "projection" (the one that explains most of it) or "nearest" (to the
        target, whatever has been taken); "auto" is each method's own.
    target : str
        The gradient to match: the "server"'s, on its validation set, or the client's "own";
        "auto" is each method's own.
    per_class : bool
        Choose within each label, by the gradient of its own neuron (section 5.2 and 5.3), or among
        all samples at once, by the whole head.
    ridge : float
        Regularisation of the weights (lambda of eq. 5).
    tolerance : float
        Matching ends when the residual is this share of the target; nearest samples fill up.
    step : int
        Samples taken in each step of matching.
    nonnegative : bool
        Keep weights from being negative.
    use_weights : bool
        Weigh samples in training as the match does; else all count the same.
    radius : float
        Distance of gradients within which CRUST lets one sample stand for another.
    """

    budget: Positive = 0.1
    every: AtLeastOne = 10
    first_round: Count = 1
    rule: Literal["auto", "distance", "projection", "nearest"] = "auto"
    target: Literal["auto", "server", "own"] = "auto"
    per_class: bool = True
    ridge: NonNegative = 0.5
    tolerance: NonNegative = 1e-4
    step: AtLeastOne = 1
    nonnegative: bool = False
    use_weights: bool = False
    radius: Positive = 2.0


class Groups(Section):
    """Groups of clients with data of their own, planted to see whether they are found."""

    kind: Literal["none", "rotation", "label-permutation"] = "none"
    count: AtLeastOne = 2


class Cohort(Section):
    """How cohorts are found, and when they change.

    Parameters
    ----------
    parts : int
        A cohort is split into at most so many (K).
    dimension : int
        Length of the sketches that updates are compared by.
    first_clustering : int
        Rounds of a cohort before clusters are looked for.
    first_split, last_split : int
        Rounds of a cohort between which it may be split; no last one if 0.
    split_rounds : int
        Rounds in a row in which a split must be worth it.
    split_exponent : float
        Splitting into K parts must bring heterogeneity down by ``K ** exponent``: 0.5 as lemma 4.1
        says of J, 1 for its square root.
    min_participants : int
        Participants a round that each part must be left with.
    exploration, exploration_decay : float
        Share of clients that try another cohort, and its decay by round.
    reward_rate : float
        Weight of a new reward against those before.
    lies_allowed : int
        Requests that contradict the update, until a client is barred.
    ask_newcomers : int
        So many rounds after a split, clients that trained with none of the cohorts are asked for
        the loss of each cohort's model and start with the best; 0 for never, as in the paper.
    number : int
        Cohorts of IFCA and FlexCFL, which must be told how many.
    pretrain_steps : int
        Local steps of the updates that FlexCFL groups clients by.
    distance : float
        Cosine distance up to which FL+HC merges clusters.
    mean_norm : float
        CFL splits when the mean update is shorter than this share of the longest one.
    """

    parts: AtLeastOne = 4
    dimension: Annotated[int, Field(ge=5)] = 256
    first_clustering: Count = 5
    first_split: Count = 20
    last_split: Count = 0
    split_rounds: AtLeastOne = 3
    split_exponent: NonNegative = 0.5
    min_participants: AtLeastOne = 10
    exploration: Share = 0.3
    exploration_decay: Share = 0.99
    reward_rate: Share = 0.2
    lies_allowed: AtLeastOne = 3
    ask_newcomers: Count = 0
    number: AtLeastOne = 3
    pretrain_steps: AtLeastOne = 50
    distance: Positive = 0.5
    mean_norm: Positive = 0.4


class Stream(Section):
    """What arrives at a client, and what it can store.

    Parameters
    ----------
    capacity, capacity_bytes : int
        Samples, and bytes of samples, that a client can store; no limit in bytes if 0.
    velocity : float
        Samples that arrive per round: below 1 a share of the client's data, else a number.
    head_start : int
        Samples that arrived before the run began, where data are played as a stream.
    drift : float
        How much the mix of classes changes over time: 0 not at all, 1 one class after the other.
    burst : int
        Rounds whose samples arrive together.
    ingest : str
        When clients look at what arrived: at their next "contact", or in "every-round" by a light
        message to those who do not train.
    """

    capacity: AtLeastOne = 10
    capacity_bytes: Count = 0
    velocity: Positive = 0.05
    head_start: Count = 50
    drift: Share = 0.0
    burst: AtLeastOne = 1
    ingest: Literal["contact", "every-round"] = "contact"


class Ode(Section):
    """What ODE values samples by, and who stores what.

    Parameters
    ----------
    estimator : str
        Of the global gradient: "incremental" (eq. 8), "participants" (those of the last round
        only), "stored" (naively, of what those store), "exact", an oracle, or "none": samples are
        not valued, and kept by lot.
    layers : int
        Last layers whose gradients count; 0 for all.
    normalize : bool
        Value directions, not lengths.
    noise : float
        Standard deviation of the noise that clients add to the gradient they report.
    coordinate : bool
        Whether the server plans who stores which label.
    clients_per_label, labels_per_client : int
        Limits of the plan; 0 for any number, so that every client may hold every label.
    quantities : str
        How a client divides its store among its labels: "even", or "matched" to eq. 10.
    cover : bool
        Whether a label that the plan gives to nobody takes the places of one that others store too.
    replan : float
        The plan is made anew when velocities have changed by this share.
    """

    estimator: Literal["incremental", "participants", "stored", "exact", "none"] = "incremental"
    layers: Count = 1
    normalize: bool = False
    noise: NonNegative = 0.0
    coordinate: bool = True
    clients_per_label: Count = 5
    labels_per_client: Count = 0
    quantities: Literal["even", "matched"] = "even"
    cover: bool = True
    replan: NonNegative = 0.2


class Ios(Section):
    """Which parameters stand for a client, and what is made of their overlap.

    Parameters
    ----------
    share : float
        Share of the parameters that a support holds; 0 for as many as cover enough (Algorithm 1).
    coverage, most : float
        Share of the importance that a support must cover, and of the parameters it may hold.
    ema : float
        Weight of the past in the average importance.
    per_layer : bool
        Fill the support layer by layer, in proportion to their sizes.
    samples : int
        Samples that importance is estimated from; 0 for all that the client trains on.
    first_round, every : int
        When cohorts are made by similarity, and how often anew.
    neighbours : int
        Clients that a client's own model is mixed from, itself not counted.
    signatures : bool
        Clients send MinHash signatures; supports are fetched only where two of these are alike.
    hashes, bands : int
        Length of a signature, and how many bands it is cut into: who shares a whole band with
        another is asked for its support.
    """

    share: Share = 0.0
    coverage: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    most: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    ema: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8
    per_layer: bool = False
    samples: Count = 0
    first_round: AtLeastOne = 2
    every: AtLeastOne = 5
    neighbours: AtLeastOne = 8
    signatures: bool = False
    hashes: Annotated[int, Field(ge=1, le=4096)] = 128
    bands: AtLeastOne = 32


class Dp(Section):
    """Differential privacy: how long an update may be, and how much noise hides it.

    Parameters
    ----------
    clip : float
        Norm to which updates are shortened.
    noise_multiplier : float
        Standard deviation of the noise over the clip, for each entry.
    delta : float
        At which epsilon is reported.
    """

    clip: Positive = 1.0
    noise_multiplier: NonNegative = 1.0
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-5


class Personalise(Section):
    """Epochs that a client fine-tunes a model on its own data before it evaluates it (FTFA)."""

    epochs: Count = 0


class Devices(Section):
    """Devices on the local engine's simulated clock.

    Parameters
    ----------
    availability : str
        When clients are there: "always", "day-night" (generated), or an ``.npz`` file with a trace.
    slow : bool
        Whether answers take simulated time.
    seconds_per_sample, bytes_per_second : float
        Medians: to train on a sample once, and of the connection.
    spread : float
        Standard deviation of the logarithm of both; 0 makes all devices alike.
    """

    availability: str = "always"
    slow: bool = False
    seconds_per_sample: Positive = 0.02
    bytes_per_second: Positive = 1e6
    spread: NonNegative = 1.0
