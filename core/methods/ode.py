"""ODE: a device with little storage keeps the samples that are worth most to the global model."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from ...selectors.stream_selectors.storage_plan import StoragePlan
from .base import Configured, Count, NonNegative, Positive, Settings, key
from .stream import StreamMethod, StreamSettings

_PAPER = "Gong et al., 2023: To Store or Not? Online Data Selection for Federated Learning"


class OdeSettings(Settings):
    """How ODE values samples, and which clients store which labels."""

    section = "ode"
    estimator: Literal["incremental", "participants", "stored", "exact", "none"] = key(
        "incremental",
        'estimate of the global gradient: "incremental" (eq. 8), "participants" (of the last '
        'round only), "stored" (of their stored samples), "exact" (an oracle) or "none" (samples '
        "are kept at random)",
    )
    layers: Count = key(1, "last layers whose gradients count; 0 means all")
    noise: NonNegative = key(
        0.0, "standard deviation of the noise that clients add to the gradient"
    )
    noise_clip: Positive = key(1.0, "norm to which the gradient is clipped before noise is added")
    coordinate: bool = key(True, "the server plans who stores which label")
    clients_per_label: Count = key(
        5,
        "at most this many clients store each label with ode; 0 means no limit, as with "
        "ode-balanced",
    )


@dataclass(frozen=True, kw_only=True)
class OdeMethod(StreamMethod):
    """ODE, with one or the other division of labels and weights."""

    settings: tuple[type[Settings], ...] = (StreamSettings, OdeSettings)
    core: str = "selectors.stream_selectors.ode:OdeSelector"
    needs: tuple[str, ...] = ("linear head",)
    sends: tuple[str, ...] = ("labels", "gradient")
    releases: tuple[str, ...] = ("an estimate of the global gradient",)
    # As in ``selectors.stream_selectors.coordination.coordinate``
    quantities: str = "even"
    client_weights: str = "stored"
    cover: bool = False
    replan: float = math.inf  # drift of velocities from which on a new plan is made

    def unprotected(self, config: Configured) -> list[str]:
        """Return what is sent without noise; labels stay on the client where there is no plan."""
        ode, found = config[OdeSettings], list[str]()
        if ode.coordinate:
            found.append("labels for a plan, set ode.coordinate = false")
        if ode.estimator == "exact":
            found.append("gradients for ode.estimator = 'exact', set it to 'incremental'")
        elif ode.estimator != "none" and not ode.noise:
            found.append("a gradient, set ode.noise to more than 0")
        return found

    def noise_multipliers(self, config: Configured) -> list[float]:
        """Return that of the gradient."""
        ode = config[OdeSettings]
        return [] if ode.estimator == "none" else [ode.noise / ode.noise_clip]

    def plan(self, config: Configured) -> StoragePlan:
        """Return the plan of who stores which label, yet to be made."""
        limited = "ode.clients-per-label" in self.keys_read()
        most = config[OdeSettings].clients_per_label if limited else 0
        own = (self.quantities, self.cover, self.client_weights)
        return StoragePlan(self.replan, most, 0, *own)


METHODS = (
    OdeMethod(
        name="ode",
        about="the samples whose gradients point most along the global one, 5 clients per label",
        paper=_PAPER,
        presets={"ode": {}},
    ),
    OdeMethod(
        name="ode-balanced",
        about="as ode, with labels stored and clients weighted in proportion to what arrives",
        after=_PAPER,
        presets={"ode-balanced": {}},
        reads=(
            *("capacity", "velocity", "drift", "estimator", "layers"),
            *("noise", "noise-clip", "coordinate"),
        ),
        quantities="proportional",
        client_weights="velocity",
        cover=True,
        replan=0.2,
    ),
)
_BY_NAME = {method.name: method for method in METHODS}


class _Run(Configured, Protocol):
    """A run config that also says how data are chosen."""

    @property
    def data_selector(self) -> str:
        """Return the method's name."""


def ode_method(config: _Run) -> OdeMethod | None:
    """Return which ODE a run uses; None where data are chosen in another way."""
    return _BY_NAME.get(config.data_selector)
