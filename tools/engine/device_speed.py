"""How fast clients are, and how long a round takes on a simulated clock: compute plus transfer."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class DeviceSpeeds:
    """What each client's device can do.

    Parameters
    ----------
    seconds_per_sample : array of float
        To train on one sample once.
    bytes_per_second : array of float
        Of its connection, in either direction.

    >>> speeds = DeviceSpeeds([0.1, 0.2], [1000.0, 100.0])
    >>> speeds.round_seconds([0, 1], samples=[10, 10], down=500, up=500).tolist()
    [2.0, 12.0]
    """

    def __init__(self, seconds_per_sample: ArrayLike, bytes_per_second: ArrayLike) -> None:
        self.seconds_per_sample = np.asarray(seconds_per_sample, dtype=np.float64)
        self.bytes_per_second = np.asarray(bytes_per_second, dtype=np.float64)
        if self.seconds_per_sample.ndim != 1 or (
            self.seconds_per_sample.shape != self.bytes_per_second.shape
        ):
            raise ValueError(
                "seconds_per_sample, bytes_per_second: expected one number per client in each"
            )
        for values in (self.seconds_per_sample, self.bytes_per_second):
            if not np.all(np.isfinite(values) & (values > 0)):
                raise ValueError("seconds_per_sample, bytes_per_second: expected positive numbers")

    @classmethod
    def drawn(
        cls,
        clients: int,
        seed: int = 0,
        seconds_per_sample: float = 0.02,
        bytes_per_second: float = 1e6,
        spread: float = 1.0,
    ) -> "DeviceSpeeds":
        """Return speeds drawn from log-normal distributions.

        The medians are assumptions: a small model on a phone with a middling connection.

        Parameters
        ----------
        clients : int
        seed : int
        seconds_per_sample, bytes_per_second : float
            Medians.
        spread : float
            Standard deviation of the natural logarithm; 0 makes all alike.

        >>> DeviceSpeeds.drawn(3, spread=0.0).bytes_per_second.tolist()
        [1000000.0, 1000000.0, 1000000.0]
        """
        if clients < 0 or not spread >= 0:
            raise ValueError(f"clients, spread: expected 0 or more, got {clients} and {spread!r}")
        rng = np.random.default_rng(seed)
        compute = seconds_per_sample * rng.lognormal(0.0, spread, clients)
        return cls(compute, bytes_per_second * rng.lognormal(0.0, spread, clients))

    def round_seconds(
        self, clients: ArrayLike, samples: ArrayLike, down: ArrayLike, up: ArrayLike
    ) -> Floats:
        """Return how long a round takes for each of some clients.

        Parameters
        ----------
        clients : array of int
            Their numbers.
        samples : int or array of int
            Samples gone through, epochs included.
        down, up : int or array of int
            Bytes received and sent.
        """
        who = np.asarray(clients, dtype=np.intp)
        if np.any((who < 0) | (who >= self.seconds_per_sample.size)):
            raise ValueError(
                f"clients: expected 0 to {self.seconds_per_sample.size - 1}, got {who}"
            )
        compute = np.asarray(samples) * self.seconds_per_sample[who]
        return np.asarray(
            compute + (np.asarray(down) + np.asarray(up)) / self.bytes_per_second[who]
        )
