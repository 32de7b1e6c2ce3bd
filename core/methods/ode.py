"""ODE: a device with little storage keeps the samples that are worth most to the global model."""

from typing import Literal

from pydantic import Field

from .base import Count, NonNegative, Positive, Settings
from .stream import Stream, StreamMethod


class Ode(Settings):
    """What ODE values samples by, and who stores what."""

    section = "ode"
    estimator: Literal["incremental", "participants", "stored", "exact", "none"] = Field(
        default="incremental",
        description='of the global gradient: "incremental" (eq. 8), "participants" (of the last '
        'round only), "stored" (of what those store), "exact" (an oracle) or "none" (samples are '
        "kept at random)",
    )
    layers: Count = Field(default=1, description="last layers whose gradients count; 0 means all")
    normalize: bool = Field(default=False, description="value directions, not lengths")
    noise: NonNegative = Field(
        default=0.0, description="standard deviation of the noise that clients add to the gradient"
    )
    noise_clip: Positive = Field(
        default=1.0, description="norm to which the gradient is shortened before noise is added"
    )
    coordinate: bool = Field(default=True, description="the server plans who stores which label")
    clients_per_label: Count = Field(
        default=5, description="at most this many clients store each label; 0 means no limit"
    )
    labels_per_client: Count = Field(
        default=0, description="at most this many labels per client; 0 means no limit"
    )
    quantities: Literal["even", "balanced", "matched"] = Field(
        default="even",
        description='how a client divides its store: "even", the remainder for its faster labels; '
        '"balanced", the remainder for labels that are stored too little of; "matched" to eq. 10',
    )
    cover: bool = Field(
        default=True, description="a label that nobody would store takes the places of another"
    )
    replan: NonNegative = Field(
        default=0.2,
        description="a new plan is made when averaged velocities have changed by this share; a "
        "label moves to a client only where it is faster by this share",
    )


METHODS = (
    StreamMethod(
        name="ode",
        about="the samples whose gradients point most along the global one",
        paper="Gong et al., 2023: To Store or Not? Online Data Selection for Federated Learning",
        presets={"ode": {}},
        settings=(Stream, Ode),
        core="selectors.stream_selectors.ode_selector:OdeSelector",
        needs=("linear head",),
        sends=("labels", "gradient"),
        releases=("an estimate of the global gradient",),
    ),
)
