"""Devices of different speed that come and go, on a simulated clock."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core.config import ConfigError, RunConfig
from .availability import Availability, Floats


class DeviceSpeeds:
    """What each client's device can do: train on a sample, and send or receive bytes."""

    def __init__(self, seconds_per_sample: ArrayLike, bytes_per_second: ArrayLike) -> None:
        self.seconds_per_sample = np.asarray(seconds_per_sample, dtype=np.float64)
        self.bytes_per_second = np.asarray(bytes_per_second, dtype=np.float64)
        names, both = "seconds_per_sample, bytes_per_second", vars(self).values()
        if any(values.ndim != 1 for values in both) or len({len(values) for values in both}) > 1:
            raise ValueError(f"{names}: expected one number per client in each")
        if not all(np.all(np.isfinite(values) & (values > 0)) for values in both):
            raise ValueError(f"{names}: expected positive numbers")

    @classmethod
    def drawn(
        cls,
        clients: int,
        seed: int = 0,
        seconds_per_sample: float = 0.02,
        bytes_per_second: float = 1e6,
        spread: float = 1.0,
    ) -> "DeviceSpeeds":
        """Return log-normal speeds with these medians; defaults assume a small model on a phone."""
        rng = np.random.default_rng(seed)
        compute = seconds_per_sample * rng.lognormal(0.0, spread, clients)
        return cls(compute, bytes_per_second * rng.lognormal(0.0, spread, clients))

    def round_seconds(
        self, clients: ArrayLike, samples: ArrayLike, down: ArrayLike, up: ArrayLike
    ) -> Floats:
        """Return how long a round takes for each of some clients; samples count every epoch."""
        who = np.asarray(clients, dtype=np.intp)
        compute = np.asarray(samples) * self.seconds_per_sample[who]
        sent = np.asarray(down) + np.asarray(up)
        return np.asarray(compute + sent / self.bytes_per_second[who])


class SimulatedDevices:
    """The clock, and what every client's device can do."""

    def __init__(
        self,
        clients: int,
        speeds: DeviceSpeeds | None = None,
        availability: Availability | None = None,
    ) -> None:
        self.clients = clients
        self.speeds = speeds
        self.availability = availability
        self.clock = 0.0

    def present(self) -> list[int]:
        """Return who is online now; if nobody is, time passes until somebody is."""
        if self.availability is None:
            return list(range(self.clients))
        here = np.flatnonzero(self.availability.available(self.clock))
        if not here.size:
            arrival = self.availability.next_arrival(self.clock)
            if arrival is not None:
                self.clock = arrival + 1e-6
                here = np.flatnonzero(self.availability.available(self.clock))
        return [int(client) for client in here]

    def seconds(
        self, clients: Sequence[int], samples: Sequence[int], down: Sequence[int], up: Sequence[int]
    ) -> list[float]:
        """Return how long each client's answer takes."""
        if self.speeds is None:
            return [0.0] * len(clients)
        return [float(s) for s in self.speeds.round_seconds(clients, samples, down, up)]

    def seconds_left(self, client: int) -> float:
        """Return for how long a client will be online."""
        if self.availability is None:
            return math.inf
        return float(self.availability.seconds_left(self.clock)[client])

    def state_dict(self) -> dict[str, Any]:
        """Return the time."""
        return {"clock": self.clock}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.clock = float(state["clock"])


def simulated_devices(config: RunConfig) -> SimulatedDevices | None:
    """Return the devices that a config describes, or None if all are alike and always online."""
    settings, clients = config.devices, config.num_clients
    if settings.availability == "always" and not settings.slow:
        return None
    speeds = None
    if settings.slow:
        medians = settings.seconds_per_sample, settings.bytes_per_second
        speeds = DeviceSpeeds.drawn(clients, config.seed, *medians, settings.spread)
    if settings.availability == "always":
        return SimulatedDevices(clients, speeds)
    if settings.availability == "day-night":
        trace = Availability.day_and_night(clients, config.seed)
    else:
        trace = _read_trace(settings.availability, clients)
    return SimulatedDevices(clients, speeds, trace)


def _read_trace(path: str, clients: int) -> Availability:
    """Read a trace: an ``.npz`` file with ``owner``, ``start``, ``end`` and ``period``."""
    try:
        with np.load(Path(path), allow_pickle=False) as arrays:
            owner, start, end = (arrays[name] for name in ("owner", "start", "end"))
            return Availability(clients, owner, start, end, float(arrays["period"]))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"run config: devices.availability = {path!r}: always, day-night, or an .npz file with "
            f"owner, start, end, period ({error})"
        ) from error
