"""The run config: what a user can set, checked before anything starts."""

from .reading import default_config, read_config
from .run_config import ConfigError, RunConfig, Scalar

__all__ = ["ConfigError", "RunConfig", "Scalar", "default_config", "read_config"]
