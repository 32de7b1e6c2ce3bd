"""What these tests share: the fakes of the unit tests of the strategies."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "strategies"))


@pytest.fixture(autouse=True, scope="session")
def _quick_collections() -> Iterator[None]:
    """Flower's q-FedAvg and Bulyan collect garbage once a reply: leave the imports out of that."""
    gc.freeze()
    yield
    gc.unfreeze()
