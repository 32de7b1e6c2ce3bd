"""The run config: what a user can set, checked before anything starts."""

from .run_config import ConfigError, RunConfig, Scalar, default_config, read_config

__all__ = ["ConfigError", "RunConfig", "Scalar", "default_config", "read_config"]
