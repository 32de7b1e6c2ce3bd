"""Random numbers that protect something: noise that hides data, which nobody may foresee.

Whoever knows a generator's seed can subtract what it drew, and every client and the server know the
run's. So there is one rule: the system's entropy, which is never kept and never restored, but where
the runtime itself is a simulation, whose data are the experimenter's own and whose runs repeat.
"""

import numpy as np


def protective(simulated: bool, *seed: int) -> np.random.Generator:
    """Return a generator for noise that protects; in simulation, the seed decides its numbers.

    Whether it is ``simulated`` must come from the runtime, never from a setting: see
    :func:`client_app.clients.is_simulated` and :func:`strategies.federation.grids.simulates`.
    """
    return np.random.default_rng(list(seed) if simulated else None)
