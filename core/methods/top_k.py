"""Uplinks that send less: the largest changes of the model, or one byte per entry."""

from dataclasses import dataclass, replace

from .base import Configured, Method, Settings, SomeShare, key


class TopK(Settings):
    """The sparse uplink."""

    section = "top-k"
    density: SomeShare = key(0.1, "share of the entries that a client sends")


@dataclass(frozen=True, kw_only=True)
class TopKMethod(Method):
    """A sparse uplink, of the run's density or of its own."""

    axis: str = "uplink"
    settings: tuple[type[Settings], ...] = (TopK,)
    density: float = 0.0
    values: str = "float32"  # type of the values sent

    def density_in(self, config: Configured) -> float:
        """Return the share of the entries that is sent in a run."""
        return self.density or config[TopK].density


_TOP_K = TopKMethod(
    name="top-k",
    about="clients send only the largest changes, and add the others to the next update",
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
        about="as top-k, with the largest three tenths of the entries in half precision",
        presets={},
        settings=(),
        density=0.3,
        values="float16",
    ),
    Method(
        axis="uplink",
        name="int8",
        about="clients send changes rounded to a byte, and add the rounding error to the next ones",
        after="Alistarh et al., 2017: QSGD: Communication-Efficient SGD via Gradient Quantization "
        "and Encoding",
        core="core.wire.int8:encode",
        outer="strategies.layers.sparse_uplink:Int8Uplink.of_run",
        hook="client_app.hooks.int8_uplink:Int8Update",
        models_per_virtual_client=2.5,
    ),
)
