"""What these tests share."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _quick_collections() -> Iterator[None]:
    """Flower's q-FedAvg and Bulyan collect garbage once a reply: leave the imports out of that."""
    gc.freeze()
    yield
    gc.unfreeze()
