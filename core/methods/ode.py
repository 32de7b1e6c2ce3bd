"""ODE: a device with little storage keeps the samples that are worth most to the global model."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from .base import Configured, Count, NonNegative, Positive, Settings
from .stream import Stream, StreamMethod

_ODE, _BALANCED = "ode", "ode-balanced"
_PAPER = "Gong et al., 2023: To Store or Not? Online Data Selection for Federated Learning"
_CHOICES = ("quantities", "client_weights")
# What "auto" means, and what is not read at all
_OWN: dict[str, dict[str, float | str]] = {
    _ODE: {
        **{"quantities": "even", "client_weights": "stored"},
        **{"cover": False, "replan": math.inf},  # the plan is made once for the clients there are
    },
    _BALANCED: {"quantities": "proportional", "client_weights": "velocity", "clients_per_label": 0},
}


class Ode(Settings):
    """What ODE values samples by, and who stores what."""

    section = "ode"
    estimator: Literal["incremental", "participants", "stored", "exact", "none"] = Field(
        default="incremental",
        description='estimate of the global gradient: "incremental" (eq. 8), "participants" (of '
        'the last round only), "stored" (of what those store), "exact" (an oracle) or "none" '
        "(samples are kept at random)",
    )
    layers: Count = Field(default=1, description="last layers whose gradients count; 0 means all")
    normalize: bool = Field(default=False, description="value directions, not lengths")
    noise: NonNegative = Field(
        default=0.0, description="standard deviation of the noise that clients add to the gradient"
    )
    noise_clip: Positive = Field(
        default=1.0, description="norm to which the gradient is clipped before noise is added"
    )
    coordinate: bool = Field(default=True, description="the server plans who stores which label")
    clients_per_label: Count = Field(
        default=5,
        description="at most this many clients store each label with ode; 0 means no limit, as "
        "with ode-balanced",
    )
    labels_per_client: Count = Field(
        default=0, description="at most this many labels per client; 0 means no limit"
    )
    quantities: Literal["auto", "even", "balanced", "proportional", "matched"] = Field(
        default="auto",
        description='how a client divides its store: "even", the remainder for its faster labels '
        '(auto, with ode); "balanced", the remainder for labels of which too few are stored; '
        '"proportional" to what arrives there (auto, with ode-balanced); "matched" to eq. 10',
    )
    client_weights: Literal["auto", "stored", "velocity"] = Field(
        default="auto",
        description='weight of a client in aggregation: "stored", the weights of its stored '
        'samples (eq. 12; auto, with ode), or "velocity", the samples that arrive there per round '
        "(auto, with ode-balanced)",
    )
    cover: bool = Field(
        default=True,
        description="with ode-balanced, a label that nobody would store takes places from another",
    )
    replan: NonNegative = Field(
        default=0.2,
        description="with ode-balanced, a new plan is made when averaged velocities have changed "
        "by this share; a label moves to a client only where it is faster by this share",
    )


@dataclass(frozen=True, kw_only=True)
class _OdeMethod(StreamMethod):
    """ODE, with one or the other division of labels and weights."""

    settings: tuple[type[Settings], ...] = (Stream, Ode)
    core: str = "selectors.stream_selectors.ode_selector:OdeSelector"
    needs: tuple[str, ...] = ("linear head",)
    sends: tuple[str, ...] = ("labels", "gradient")
    releases: tuple[str, ...] = ("an estimate of the global gradient",)

    def unprotected(self, config: Configured) -> list[str]:
        """Return what is sent without noise; labels stay on the client where there is no plan."""
        ode, found = config[Ode], super().unprotected(config)
        if ode.coordinate:
            found.append("labels for a plan, set ode.coordinate = false")
        if ode.estimator == "exact":
            found.append("gradients for ode.estimator = 'exact', set it to 'incremental'")
        elif ode.estimator != "none" and not ode.noise:
            found.append("a gradient, set ode.noise to more than 0")
        return found

    def noise_multipliers(self, config: Configured) -> list[float]:
        """Return that of the gradient."""
        ode = config[Ode]
        return [] if ode.estimator == "none" else [ode.noise / ode.noise_clip]


def _all_but(*keys: str) -> tuple[str, ...]:
    """Return the keys of streams and of ODE besides some, without prefix."""
    found = [*Stream.own_keys(), *Ode.own_keys()]
    return tuple(key.partition(".")[2] for key in found if key not in keys)


METHODS = (
    _OdeMethod(
        name=_ODE,
        about="the samples whose gradients point most along the global one, 5 clients per label",
        paper=_PAPER,
        presets={_ODE: {}},
        reads=_all_but("ode.cover", "ode.replan"),
    ),
    _OdeMethod(
        name=_BALANCED,
        about="likewise, labels stored and clients weighted in proportion to what arrives",
        after=_PAPER,
        presets={_BALANCED: {}},
        reads=_all_but("ode.clients-per-label"),
    ),
)


class _Run(Configured, Protocol):
    """A run config that also says how data are chosen."""

    @property
    def data_selector(self) -> str:
        """Return the method's name."""


def ode_settings(config: _Run) -> Ode | None:
    """Return ODE's settings as a run uses them; None where data are chosen in another way."""
    if config.data_selector not in _OWN:
        return None
    given = {k: v for k, v in config[Ode] if k in _CHOICES and v != "auto"}
    return config[Ode].model_copy(update={**_OWN[config.data_selector], **given})
