"""How much clients train in a round."""

from typing import Any

from .base import Method

_STEPS: dict[str, Any] = {
    "hook": "client_app.hooks.given_steps:GivenSteps",
    "needs": ("our training",),
}
_WITH = {"data-selector": ("full",), "objective": ("sgd", "prox", "gce", "sce")}

METHODS = (
    Method(axis="work", name="same", about="all clients train for the same epochs", default=True),
    Method(
        axis="work",
        name="by-loss",
        about="from a fifth to all of the usual local steps, more for clients with a higher loss",
        after="Doriguzzi-Corin and Siracusa, 2024: FLAD, Adaptive Federated Learning",
        core="selectors.work_by_loss:work_by_loss",
        outer="strategies.layers.work_by_loss:WorkByLoss.of_run",
        sends=("loss",),
        releases=("steps that depend on the losses of others",),
        requires={"client-selector": ("flad", "local-loss", "power-of-choice", "fedcor"), **_WITH},
        **_STEPS,
    ),
    Method(
        axis="work",
        name="by-speed",
        about="as many local steps as let all clients finish together",
        after="Li et al., 2024: FedCompass: Efficient Cross-Silo Federated Learning on "
        "Heterogeneous Client Devices using a Computing Power Aware Scheduler",
        core="selectors.equal_time:steps_by_speed",
        outer="strategies.layers.equal_time:EqualTime.of_run",
        requires=_WITH,
        **_STEPS,
    ),
    Method(
        axis="work",
        name="coreset-by-speed",
        about="slow clients train on coresets small enough to finish with the others",
        after="Guo et al., 2024: FedCore: Straggler-Free Federated Learning with Distributed "
        "Coresets",
        core="selectors.equal_time:steps_by_speed",
        outer="strategies.layers.equal_time:EqualTime.of_run",
        needs=("our training",),
        requires={"data-selector": ("crust", "gradmatch", "facility-location", "random")},
    ),
)
