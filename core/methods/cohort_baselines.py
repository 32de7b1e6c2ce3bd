"""Other ways to put clients into cohorts, which Auxo is compared with."""

from typing import Annotated

from pydantic import Field

from .base import AtLeastOne, Positive, Settings, Share
from .cohort import Cohort, CohortMethod


class CflSettings(Settings):
    """When cfl splits a cohort."""

    section = "cfl"
    mean_norm: Positive = Field(
        default=0.5,
        description="it is split when the mean update is shorter than this share of the longest",
    )
    longest_norm: Share = Field(
        default=0.5,
        description="it is split while the longest update is longer than this share of the longest "
        "of all rounds; 0 means always",
    )
    cross_similarity: Annotated[float, Field(ge=-1.0, le=1.0)] = Field(
        default=0.35,
        description="it is not split where two clients of different parts have updates with at "
        "least this cosine; 1 splits in any case",
    )


class FlexCflSettings(Settings):
    """What flexcfl groups clients by."""

    section = "flexcfl"
    pretrain_steps: AtLeastOne = Field(
        default=50, description="local steps of the updates that clients are grouped by"
    )


class FlHcSettings(Settings):
    """How fl-hc clusters clients."""

    section = "fl-hc"
    distance: Positive = Field(
        default=0.5, description="cosine distance up to which clusters are merged"
    )


_ALONE = {"similarity": ("none",)}
_WHO = ("who is in which cohort",)

METHODS = (
    CohortMethod(
        name="ifca",
        about="a given number of models; every client trains the one with the lowest loss",
        paper="Ghosh et al., 2020: An Efficient Framework for Clustered Federated Learning",
        settings=(Cohort,),
        reads=("number",),
        core="selectors.cohorts.ifca:Ifca",
        rule="strategies.cohorts.ifca:IfcaRule",
        sends=("loss",),
        requires=_ALONE,
    ),
    CohortMethod(
        name="cfl",
        about="a cohort is split in two once it has converged and its clients have not",
        paper="Sattler, Müller and Samek, 2020: Clustered Federated Learning",
        settings=(CflSettings, Cohort),
        reads=("joint-rounds", "mean-norm", "longest-norm", "cross-similarity"),
        core="selectors.cohorts.cfl:Cfl",
        rule="strategies.cohorts.cfl:CflRule",
        releases=_WHO,
        requires=_ALONE,
    ),
    CohortMethod(
        name="flexcfl",
        about="a given number of groups, by the updates of some clients' pretraining",
        paper="Duan et al., 2021: Flexible Clustered Federated Learning",
        settings=(FlexCflSettings, Cohort),
        reads=("number", "pretrain-steps"),
        core="selectors.cohorts.flexcfl:FlexCfl",
        rule="strategies.cohorts.grouped:FlexCflRule",
        sends=("update",),
        releases=_WHO,
        requires=_ALONE,
    ),
    CohortMethod(
        name="fl-hc",
        about="after some joint rounds, one clustering of all clients' updates",
        paper="Briggs, Fan and Andras, 2020: Federated Learning with Hierarchical Clustering",
        settings=(FlHcSettings, Cohort),
        reads=("joint-rounds", "distance"),
        core="selectors.cohorts.fl_hc:FlHc",
        rule="strategies.cohorts.grouped:FlHcRule",
        sends=("update",),
        releases=_WHO,
        requires=_ALONE,
    ),
)
