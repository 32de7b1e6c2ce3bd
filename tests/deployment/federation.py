"""The federation of real processes that benchmarks use too."""

from forager.benchmarks.federation import START_SECONDS, Federation, listens

__all__ = ["START_SECONDS", "Federation", "listens"]
