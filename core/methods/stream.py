"""Data that arrive as a stream, and the simple rules for what is kept of it."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from .base import AtLeastOne, Configured, Count, Method, Positive, Settings, Share


class Stream(Settings):
    """What arrives at a client, and what it can store."""

    section = "stream"
    capacity: AtLeastOne = Field(default=10, description="samples that a client can store")
    capacity_bytes: Count = Field(
        default=0, description="bytes that they may take; 0 means no limit"
    )
    velocity: Positive = Field(
        default=0.05,
        description="samples that arrive per round; below 1, a share of the client's data",
    )
    drift: Share = Field(
        default=0.0,
        description="how much the class mix changes over time: 0 means not at all, 1 one class "
        "after the other",
    )
    burst: AtLeastOne = Field(default=1, description="rounds whose samples arrive together")
    ingest: Literal["contact", "every-round"] = Field(
        default="contact",
        description='clients look at what arrived at their next "contact", or in "every-round", '
        "where those who do not train get a light message",
    )


@dataclass(frozen=True, kw_only=True)
class StreamMethod(Method):
    """A rule for what a client keeps of its stream."""

    axis: str = "data-selector"
    settings: tuple[type[Settings], ...] = (Stream,)
    layer: str = "strategies.layers.streams:Streams.of_run"
    hook: str = "client_app.hooks.streams:StreamedData"
    sends: tuple[str, ...] = ("labels",)

    def unprotected(self, config: Configured) -> list[str]:
        """Return nothing: how fast labels come stays on the client; but it must not be asked."""
        if config[Stream].ingest == "every-round":
            return ["answers to stream.ingest = 'every-round', set it to 'contact'"]
        return []


_HEAD = ("linear head",)

METHODS = (
    StreamMethod(
        name="reservoir",
        about="every sample of the stream is kept with the same probability",
        core="selectors.stream_selectors.plain:Reservoir",
    ),
    StreamMethod(
        name="fifo",
        about="the newest samples",
        core="selectors.stream_selectors.plain:Fifo",
    ),
    StreamMethod(
        name="high-loss",
        about="the samples with the highest loss",
        core="selectors.stream_selectors.ranked:HighLoss",
        needs=_HEAD,
    ),
    StreamMethod(
        name="gradient-norm",
        about="the samples with the longest gradients",
        core="selectors.stream_selectors.ranked:GradientNorm",
        needs=_HEAD,
    ),
    StreamMethod(
        name="fedbalancer",
        about="samples with a high loss, but not the highest",
        paper="Shin, Li, Liu and Lee, 2022: FedBalancer",
        core="selectors.stream_selectors.ranked:FedBalancer",
        needs=_HEAD,
    ),
    StreamMethod(
        name="sld",
        about="samples with long gradients, but not the longest",
        core="selectors.stream_selectors.ranked:Sld",
        needs=_HEAD,
    ),
    StreamMethod(
        name="titan",
        about="places for classes by how much their gradients differ, then samples by importance",
        paper="Gong et al., 2025: A Two-Stage Data Selection Framework for Edge Devices (Titan)",
        core="selectors.stream_selectors.titan:Titan",
        needs=_HEAD,
    ),
    StreamMethod(
        name="unlimited",
        about="all of the stream, whatever the capacity",
        reads=("velocity", "drift", "burst", "ingest"),
        core="selectors.stream_selectors.plain:Unlimited",
    ),
)
