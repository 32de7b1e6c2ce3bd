"""Random numbers that protect something: noise that hides data, which nobody may foresee.

Whoever knows a generator's seed can subtract what it drew, and every client and the server know the
run's. So there is one rule: the system's entropy, which is never kept and never restored, but where
the runtime itself is a simulation, whose data are the experimenter's own and whose runs repeat.
"""

import numpy as np


def protective(simulated: bool, *seed: int) -> np.random.Generator:
    """Return a generator for noise that protects.

    Parameters
    ----------
    simulated : bool
        Whether the runtime is a simulation. It must come from the runtime, never from a setting:
        see :func:`client_app.clients.is_simulated` and
        :func:`strategies.federation.grids.simulates`.
    *seed : int
        What decides the numbers in simulation.

    Examples
    --------
    >>> protective(True, 1, 5).random() == protective(True, 1, 5).random()
    True
    >>> protective(False, 1, 5).random() == protective(False, 1, 5).random()
    False
    """
    return np.random.default_rng(list(seed) if simulated else None)
