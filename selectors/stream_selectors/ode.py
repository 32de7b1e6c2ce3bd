"""ODE: what a sample is worth, and the gradients that say so.

Gong et al.: *To Store or Not? Online Data Selection for Federated Learning with Limited Storage*.
A sample is worth the projection of its gradient on the global gradient (eq. 6). A device averages
the gradients of what arrives (eq. 7) and reports the mean when it takes part; the server makes an
estimate of the global gradient of the reports (eq. 8). The coordination of section 3.3 is in
``coordination.py``, the queue of the best in ``value_store.py``.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, one_of
from ..stateful import Stateful
from .coordination import class_weights, coordinate
from .value_store import ValueStore

__all__ = [
    "GlobalGradient",
    "RunningGradient",
    "ValueStore",
    "class_weights",
    "coordinate",
    "data_values",
]

Floats = NDArray[np.float64]

_MODES = ("incremental", "participants")


def data_values(gradients: ArrayLike, direction: ArrayLike, normalize: bool = False) -> Floats:
    """Return the value of every sample: its gradient, projected on the global one (eq. 6).

    - ``gradients`` (shape (samples, ...)): one gradient per sample.
    - ``direction`` (shape (...)): the global gradient or an estimate of it; a plain 0 stands for
      the zero gradient.
    - ``normalize``: divide by the length of the sample's gradient, so that large gradients are not
      favoured.

    >>> gradients = [[3.0, 4.0], [0.0, 1.0], [-1.0, 0.0]]
    >>> data_values(gradients, [1.0, 0.0]).tolist()
    [3.0, 0.0, -1.0]
    >>> data_values(gradients, [1.0, 0.0], normalize=True).tolist()
    [0.6, 0.0, -1.0]
    """
    rows, target = np.asarray(gradients, dtype=np.float64), np.asarray(direction, dtype=np.float64)
    zero = target.ndim == 0 and target == 0
    if rows.ndim == 0 or not (zero or target.shape == rows.shape[1:]):
        raise ValueError(f"direction: shape {target.shape} does not fit gradients {rows.shape}")
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    values: Floats = flat @ (np.zeros(flat.shape[1]) if zero else target.ravel())
    if normalize:
        norms = np.linalg.norm(flat, axis=1)
        values = np.divide(values, norms, out=np.zeros_like(values), where=norms != 0)
    return values


class RunningGradient(Stateful):
    """The mean gradient of what arrived at a device since it last took part (eq. 7).

    >>> running = RunningGradient()
    >>> running.update([2.0, 0.0])
    >>> running.update([5.0, 3.0], count=2)  # the mean of two samples
    >>> running.mean.tolist()
    [4.0, 2.0]
    >>> running.report().tolist(), running.count
    ([4.0, 2.0], 0)
    >>> running.report().tolist()  # nothing new: what was said before
    [4.0, 2.0]
    """

    remembers = ("_mean", "_count", "_reported")

    def __init__(self) -> None:
        self._mean = np.zeros(())
        self._reported = np.zeros(())
        self._count = 0

    @property
    def mean(self) -> Floats:
        """The mean; a plain 0 if nothing arrived."""
        return self._mean.copy()

    @property
    def count(self) -> int:
        """How many samples the mean is of."""
        return self._count

    def update(self, gradient: ArrayLike, count: int = 1) -> None:
        """Take in a sample's gradient, or the mean gradient of ``count`` samples."""
        new = np.asarray(gradient, dtype=np.float64)
        at_least(1, count=count)
        if self._count and new.shape != self._mean.shape:
            raise ValueError(f"gradient: expected shape {self._mean.shape}, got {new.shape}")
        if not np.isfinite(new).all():
            raise ValueError("gradient: expected finite numbers, found others")
        self._count += count
        self._mean = self._mean + (new - self._mean) * (count / self._count)

    def report(self) -> Floats:
        """Return what is reported to the server, and start again.

        If nothing arrived that is the last report, and a plain 0 if nothing ever did.
        """
        if self._count:
            self._reported, self._mean, self._count = self._mean, np.zeros(()), 0
        return self._reported.copy()


class GlobalGradient:
    """The server's estimate of the global gradient, from what the participants report (eq. 8).

    - ``shares``: weight of each client: how fast samples arrive there. Only their ratios matter.
    - ``mode``: "incremental" replaces the last report of each participant, so that the estimate is
      the weighted mean of everyone's last report; a client that never reported does not count.
      "participants" is the weighted mean of the last participants' reports alone.

    >>> estimator = GlobalGradient({"a": 1.0, "b": 3.0})
    >>> estimator.report({"a": [4.0, 0.0]})
    >>> estimator.estimate.tolist()
    [4.0, 0.0]
    >>> estimator.report({"b": [0.0, 4.0]})
    >>> estimator.estimate.tolist()
    [1.0, 3.0]
    """

    def __init__(
        self, shares: Mapping[Any, float] | Iterable[float], mode: str = "incremental"
    ) -> None:
        one_of(_MODES, mode=mode)
        self.mode = mode
        self._shares = _checked_shares(shares)
        self._last: dict[Hashable, NDArray[Any]] = {}
        self._sum = np.zeros(())
        self._weight = 0.0

    @property
    def estimate(self) -> Floats:
        """The estimate; a plain 0 while there is none."""
        return self._sum / self._weight if self._weight else np.zeros(())

    def report(self, estimates: Mapping[Any, ArrayLike]) -> None:
        """Take in what the participants of a round report; nothing if any of it is unusable.

        A plain 0, from a client where nothing ever arrived, is no report.
        """
        checked = {client: self._checked(client, value) for client, value in estimates.items()}
        reports = {client: report for client, report in checked.items() if _says_something(report)}
        if len({report.shape for report in reports.values()}) > 1:
            raise ValueError("estimates: expected arrays of one shape, got several")
        if self.mode == "participants":
            if any(self._shares[client] for client in reports):
                self._sum, self._weight = self._total(reports)
            return
        for client, report in reports.items():
            share, last = self._shares[client], self._last.get(client)
            self._sum = self._sum + share * (report - (0.0 if last is None else last))
            self._weight += share if last is None else 0.0
            self._last[client] = report

    def reshare(self, shares: Mapping[Any, float] | Iterable[float]) -> None:
        """Change the clients or their shares; reports of those that are gone are forgotten."""
        self._shares = _checked_shares(shares)
        if self.mode == "incremental":
            self._last = {c: report for c, report in self._last.items() if c in self._shares}
            self._sum, self._weight = self._total(self._last)

    def _total(self, reports: Mapping[Hashable, NDArray[Any]]) -> tuple[Floats, float]:
        total, weight = np.zeros(()), 0.0
        for client, report in reports.items():
            total = total + self._shares[client] * report
            weight += self._shares[client]
        return total, weight

    def _checked(self, client: Hashable, estimate: ArrayLike) -> Floats:
        report = np.array(estimate, dtype=np.float64)
        if client not in self._shares:
            raise ValueError(f"estimates: client {client!r} has no share")
        if not np.isfinite(report).all():
            raise ValueError(f"estimates: client {client!r} reports numbers that are not finite")
        if self._sum.ndim and report.shape != self._sum.shape and _says_something(report):
            expected = f"expected shape {self._sum.shape}, got {report.shape}"
            raise ValueError(f"estimates: client {client!r}: {expected}")
        return report

    def state_dict(self) -> dict[str, Any]:
        """Return shares, the last reports and the estimate."""
        state = {"shares": list(self._shares.items()), "sum": self._sum, "weight": self._weight}
        return state | {"last": list(self._last.items())}  # reports are replaced, never changed

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._shares = {client: float(share) for client, share in state["shares"]}
        self._last = {client: np.array(report) for client, report in state["last"]}
        self._sum, self._weight = np.array(state["sum"]), float(state["weight"])


def _says_something(report: Floats) -> bool:
    return report.ndim > 0 or bool(report != 0)


def _checked_shares(shares: Mapping[Any, float] | Iterable[float]) -> dict[Hashable, float]:
    pairs = shares.items() if isinstance(shares, Mapping) else enumerate(shares)
    checked = {client: float(share) for client, share in pairs}
    for client, share in checked.items():
        if not 0 <= share < math.inf:
            raise ValueError(f"shares: client {client!r}: expected 0 or more, got {share!r}")
    return checked
