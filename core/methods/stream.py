"""Data that arrive as a stream, and the simple rules for what is kept of it."""

from dataclasses import dataclass
from typing import Any

from .base import AtLeastOne, Configured, Method, Positive, Settings, Share, key


class StreamSettings(Settings):
    """The stream of a client, and its store."""

    section = "stream"
    capacity: AtLeastOne = key(10, "samples that a client can store")
    velocity: Positive = key(
        0.05, "samples that arrive per round; below 1, a share of the client's data"
    )
    drift: Share = key(
        0.0,
        "how much the class mix changes over time: 0 means not at all, 1 one class after the other",
    )


@dataclass(frozen=True, kw_only=True)
class StreamMethod(Method):
    """A rule for what a client keeps of its stream."""

    axis: str = "data-selector"
    settings: tuple[type[Settings], ...] = (StreamSettings,)
    layer: str = "strategies.layers.streams:Streams.of_run"
    hook: str = "client_app.hooks.streams:StreamedData"
    sends: tuple[str, ...] = ("labels",)

    def unprotected(self, config: Configured) -> list[str]:
        """Return nothing: how fast labels come stays on the client."""
        return []


def _rule(name: str, about: str, core: str, **more: Any) -> StreamMethod:
    return StreamMethod(name=name, about=about, core=f"selectors.stream_selectors.{core}", **more)


_BY_LOSS: dict[str, Any] = {"needs": ("linear head",)}

METHODS = (
    _rule(
        "reservoir",
        "every sample of the stream is kept with the same probability",
        "plain:Reservoir",
    ),
    _rule("fifo", "the newest samples", "plain:Fifo"),
    _rule("high-loss", "the samples with the highest loss", "ranked:HighLoss", **_BY_LOSS),
    _rule(
        "gradient-norm", "the samples with the longest gradients", "ranked:GradientNorm", **_BY_LOSS
    ),
    _rule(
        "fedbalancer",
        "samples with a high loss, but not the highest",
        "ranked:FedBalancer",
        paper="Shin, Li, Liu and Lee, 2022: FedBalancer",
        **_BY_LOSS,
    ),
    _rule("sld", "samples with long gradients, but not the longest", "ranked:Sld", **_BY_LOSS),
    _rule(
        "titan",
        "places for classes by the length of their gradients, then samples by importance",
        "titan:Titan",
        after="Gong et al., 2025: A Two-Stage Data Selection Framework for Edge Devices (Titan)",
        **_BY_LOSS,
    ),
    _rule(
        "unlimited",
        "all of the stream, whatever the capacity",
        "plain:Unlimited",
        reads=("velocity", "drift"),
    ),
)
