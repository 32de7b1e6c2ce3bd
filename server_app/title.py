"""What runs, in a few words."""

from ..core.config import RunConfig
from ..core.config.reading import fill_axes
from ..core.methods.catalogue import AXES


def run_title(config: RunConfig) -> str:
    """Name the preset, what differs from it, and the task.

    >>> from forager.core.config import default_config, read_config
    >>> def title(**keys: str) -> str:
    ...     return run_title(read_config({**default_config(), **keys}))
    >>> title(strategy="cosage")
    'cosage on digits'
    >>> title(aggregator="fedyogi", uplink="top-k")
    'fedavg with aggregator fedyogi, uplink top-k on digits'
    """
    preset, flat = fill_axes(config.strategy, {}), config.flat()
    other = [f"{axis} {flat[axis]}" for axis in sorted(AXES) if flat[axis] != preset[axis]]
    changed = f" with {', '.join(other)}" if other else ""
    return f"{config.strategy}{changed} on {config.task}"
