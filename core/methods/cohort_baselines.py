"""Other ways to put clients into cohorts, which Auxo is compared with."""

from .cohort import CohortMethod, CohortSettings

_ALONE = {"similarity": ("none",)}
_WHO = ("who is in which cohort",)

METHODS = (
    CohortMethod(
        name="ifca",
        about="a given number of models; every client trains the one with the lowest loss",
        paper="Ghosh et al., 2020: An Efficient Framework for Clustered Federated Learning",
        settings=(CohortSettings,),
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
        settings=(CohortSettings,),
        reads=("joint-rounds",),
        core="selectors.cohorts.cfl:Cfl",
        rule="strategies.cohorts.cfl:CflRule",
        releases=_WHO,
        requires=_ALONE,
    ),
    CohortMethod(
        name="flexcfl",
        about="a given number of groups, by the updates of some clients' pretraining",
        paper="Duan et al., 2021: Flexible Clustered Federated Learning",
        settings=(CohortSettings,),
        reads=("number",),
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
        settings=(CohortSettings,),
        reads=("joint-rounds",),
        core="selectors.cohorts.fl_hc:FlHc",
        rule="strategies.cohorts.grouped:FlHcRule",
        sends=("update",),
        releases=_WHO,
        requires=_ALONE,
    ),
)
