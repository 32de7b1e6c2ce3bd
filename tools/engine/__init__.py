"""The local engine: the same apps in one process, without a transport."""

from .local import LocalResult, run_local

__all__ = ["LocalResult", "run_local"]
