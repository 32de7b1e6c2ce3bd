"""How fast clients are, and how long a round takes on a simulated clock: compute plus transfer."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]


class DeviceSpeeds:
    """What each client's device can do.

    Parameters
    ----------
    seconds_per_sample : array of float
        To train on one sample once.
    bytes_per_second : array of float
        Of its connection, in either direction.

    Examples
    --------
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

        Examples
        --------
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


def first_to_finish(
    seconds: ArrayLike, count: int, deadline: float = np.inf, left: ArrayLike | None = None
) -> tuple[Positions, float]:
    """Return whose replies count in a round that asked more than it needs, and how long it took.

    The round ends with the reply that makes it ``count``. If fewer reply, it ends at the deadline,
    or with the last reply if there is no deadline.

    Parameters
    ----------
    seconds : array of float
        That each client needs.
    count : int
        Replies that are enough.
    deadline : float
        Seconds after which the round stops waiting.
    left : array of float, optional
        For how long each client stays; a client that needs longer never replies.

    Examples
    --------
    >>> positions, took = first_to_finish([5.0, 1.0, 9.0, 2.0], count=2)
    >>> positions.tolist(), took
    ([1, 3], 2.0)
    >>> positions, took = first_to_finish([5.0, 1.0], count=2, deadline=3.0)
    >>> positions.tolist(), took
    ([1], 3.0)
    """
    needed = np.asarray(seconds, dtype=np.float64)
    if count < 0:
        raise ValueError(f"count: expected 0 or more, got {count}")
    stays = np.full(needed.shape, np.inf) if left is None else np.asarray(left, dtype=np.float64)
    in_time = np.flatnonzero((needed <= deadline) & (needed <= stays))
    order = in_time[np.argsort(needed[in_time], kind="stable")]
    if order.size >= count or not np.isfinite(deadline):
        replied = order[:count]
        return replied, float(needed[replied].max(initial=0.0))
    return order, float(deadline)
