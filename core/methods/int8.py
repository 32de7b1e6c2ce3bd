"""Int8: clients send one byte per entry of their update."""

from .base import Method

METHODS = (
    Method(
        axis="uplink",
        name="int8",
        about="clients send changes rounded to a byte, and add what rounding lost to the next",
        after="Alistarh et al., 2017: QSGD: Communication-Efficient SGD via Gradient Quantization "
        "and Encoding",
        core="core.wire.int8:encode",
        outer="strategies.layers.sparse_uplink:Int8Uplink.of_run",
        hook="client_app.hooks.int8_uplink:Int8Update",
        models_per_virtual_client=2.5,
    ),
)
