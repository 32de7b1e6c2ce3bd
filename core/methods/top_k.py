"""Top-k: clients send only the largest changes of the model."""

from dataclasses import dataclass, replace
from typing import Literal

from .base import Configured, Method, Settings, SomeShare, key


class TopK(Settings):
    """The sparse uplink."""

    section = "top-k"
    density: SomeShare = key(0.1, "share of the entries that a client sends")
    values: Literal["float32", "float16"] = key("float32", "type of the values sent")


@dataclass(frozen=True, kw_only=True)
class TopKMethod(Method):
    """A sparse uplink, by the run's settings or by its own."""

    axis: str = "uplink"
    settings: tuple[type[Settings], ...] = (TopK,)
    own: TopK | None = None

    def settings_in(self, config: Configured) -> TopK:
        """Return how much is sent in a run, and as which type."""
        return self.own or config[TopK]


_TOP_K = TopKMethod(
    name="top-k",
    about="clients send only the largest changes, and add what is left out to the next update",
    after="Stich, Cordonnier and Jaggi, 2018: Sparsified SGD with Memory",
    presets={"cosage-feedback": {"client-selector": "cosage", "weighting": "uniform"}},
    core="core.wire.sparse:encode",
    outer="strategies.layers.sparse_uplink:SparseUplink.of_run",
    hook="client_app.hooks.sparse_uplink:SparseUpdate",
    models_per_virtual_client=2.5,
)

METHODS = (
    _TOP_K,
    replace(
        _TOP_K,
        name="top-k-plain",
        about="the same, without adding unsent changes to the next update",
        after="",
        presets={},
        hook="client_app.hooks.sparse_uplink:ForgetfulUpdate",
        models_per_virtual_client=0.0,
    ),
    replace(
        _TOP_K,
        name="compact",
        about="as top-k, with the largest three tenths in half precision: more for the same bytes",
        presets={},
        settings=(),
        own=TopK(density=0.3, values="float16"),
    ),
)
