"""The server side: rounds, checkpoints, events and the report are Forager's."""

from forager.server import app

__all__ = ["app"]
