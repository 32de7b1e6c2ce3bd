"""ODE: a device with little storage keeps the samples that are worth most to the global model."""

from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from .base import Configured, Count, NonNegative, Positive, Settings
from .stream import Stream, StreamMethod

_PLAIN, _PAPER = "ode", "ode-paper"
_OF_PAPER = {"clients_per_label": 5, "quantities": "even", "client_weights": "stored"}


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
        default=0, description="at most this many clients store each label; 0 means no limit"
    )
    labels_per_client: Count = Field(
        default=0, description="at most this many labels per client; 0 means no limit"
    )
    quantities: Literal["even", "balanced", "proportional", "matched"] = Field(
        default="proportional",
        description='how a client divides its store: "even", the remainder for its faster labels; '
        '"balanced", the remainder for labels of which too few are stored; "proportional" to '
        'what arrives there; "matched" to eq. 10',
    )
    client_weights: Literal["stored", "velocity"] = Field(
        default="velocity",
        description='weight of a client in aggregation: "stored", the weights of its stored '
        'samples (eq. 12), or "velocity", the samples that arrive there per round',
    )
    cover: bool = Field(
        default=True, description="a label that nobody would store takes places from another"
    )
    replan: NonNegative = Field(
        default=0.2,
        description="a new plan is made when averaged velocities have changed by this share; a "
        "label moves to a client only where it is faster by this share",
    )


@dataclass(frozen=True, kw_only=True)
class _OdeMethod(StreamMethod):
    """ODE, with one or the other way to read its settings."""

    paper: str = "Gong et al., 2023: To Store or Not? Online Data Selection for Federated Learning"
    settings: tuple[type[Settings], ...] = (Stream, Ode)
    core: str = "selectors.stream_selectors.ode_selector:OdeSelector"
    needs: tuple[str, ...] = ("linear head",)
    sends: tuple[str, ...] = ("labels", "gradient")
    releases: tuple[str, ...] = ("an estimate of the global gradient",)


METHODS = (
    _OdeMethod(
        name=_PLAIN,
        about="the samples whose gradients point most along the global one",
        presets={_PLAIN: {}},
    ),
    _OdeMethod(
        name=_PAPER,
        about="ODE to the letter: 5 clients per label, the remainder for each client's fast labels",
        presets={_PAPER: {}},
        reads=tuple(
            key.partition(".")[2]
            for key in [*Stream.own_keys(), *Ode.own_keys()]
            if key.partition(".")[2].replace("-", "_") not in _OF_PAPER
        ),
    ),
)


class _Run(Configured, Protocol):
    """A run config that also says how data are chosen."""

    @property
    def data_selector(self) -> str:
        """Return the method's name."""


def ode_settings(config: _Run) -> Ode | None:
    """Return ODE's settings as a run uses them; None where data are chosen in another way."""
    if config.data_selector == _PLAIN:
        return config[Ode]
    return config[Ode].model_copy(update=_OF_PAPER) if config.data_selector == _PAPER else None
