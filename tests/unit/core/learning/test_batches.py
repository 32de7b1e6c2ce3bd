"""Which samples make which mini-batch."""

import numpy as np
import pytest
from forager.core.learning.job import batch_plans


@pytest.mark.parametrize(("epochs", "steps"), [(1, 0), (2, 0), (1, 1), (1, 5)])
def test_batches_do_not_depend_on_the_company(epochs: int, steps: int) -> None:
    """Clients with equally many samples take a shorter way than others."""
    alike = batch_plans([10, 10], 4, epochs, steps, [7, 8])
    mixed = batch_plans([10, 10, 3], 4, epochs, steps, [7, 8, 9])
    assert np.array_equal(alike, mixed[:2])
