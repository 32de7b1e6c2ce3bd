"""The client side: it trains what task.py says, and answers what a strategy asks."""

from forager.client import app

__all__ = ["app"]
