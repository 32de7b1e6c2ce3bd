"""ODE: the value of a sample, and the gradients from which it follows.

Gong et al.: *To Store or Not? Online Data Selection for Federated Learning with Limited Storage*.
The value of a sample is the projection of its gradient on the global gradient (eq. 6). A device
averages the gradients of arriving samples (eq. 7) and reports the mean when it takes part; from the
reports the server estimates the global gradient (eq. 8). The coordination of section 3.3 is in
``coordination.py``, the priority queue of the most valuable samples in ``value_store.py``.
"""

import math
import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, one_of
from ..stateful import Stateful
from .base import Floats, Ints, Offered, StreamSelector
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
        """Add a sample's gradient, or the mean gradient of ``count`` samples."""
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
        """Process the reports of a round; if one is unusable, nothing changes.

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
        """Restore what :meth:`state_dict` returned."""
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


_UNVALUED = -sys.float_info.max  # ranks below every value
_ANY = -1  # stands for all labels, where there is no plan


class OdeSelector(StreamSelector):
    """Keeps the samples of highest value, for each assigned label as many as its quota.

    Samples of other labels are never stored. Without a plan all labels share the capacity. While
    there is no estimate of the global gradient, and so no values, batches come without them, and
    each queue is a reservoir: a uniform sample.

    - ``capacity``: most samples to keep, of all labels together.
    - ``seed``: of the generator that draws while there are no values.
    - ``quota``: samples to keep of each label: the client's row of the plan.

    >>> rule = OdeSelector(capacity=3, quota=[2, 0, 1])
    >>> batch = Offered([10, 11, 12, 13, 14], [0, 1, 2, 0, 0], values=[0.1, 9.0, 0.3, 0.2, 0.4])
    >>> rule.offer(batch).kept.tolist()  # 11 is of a label that is not assigned
    [2, 3, 4]
    >>> rule.revalue(Offered([13, 14], [0, 0], values=[0.9, 0.0]))
    >>> rule.offer(Offered([15], [0], values=[0.5])).evicted.tolist()
    [14]
    """

    needs = "value"

    def __init__(self, capacity: int, seed: int = 0, quota: ArrayLike | None = None) -> None:
        super().__init__(capacity, seed)
        self._by_lot = True
        self._stores = {k: ValueStore(n) for k, n in self._places(quota).items()}

    @property
    def values(self) -> Floats:
        """Values of the stored samples; NaN if there are none."""
        values = [self._store_of(label).value(key) for key, label in self._labels.items()]
        return np.array([np.nan if self._by_lot or v == _UNVALUED else v for v in values])

    @property
    def quota(self) -> dict[int, int]:
        """Places by assigned label; empty without a plan."""
        return {k: store.capacity for k, store in self._stores.items() if k != _ANY}

    def assign(self, quota: ArrayLike | None) -> Ints:
        """Follow another plan; return the keys of what it leaves no place for."""
        places = self._places(quota)
        if places == {label: store.capacity for label, store in self._stores.items()}:
            return np.empty(0, dtype=np.int64)
        old, self._stores = self._stores, {k: ValueStore(n) for k, n in places.items()}
        for key, label in self._labels.items():
            store = self._stores.get(label, self._stores.get(_ANY))
            if store is not None:
                store.offer(key, old.get(label, old.get(_ANY, store)).value(key))
        before = self.kept
        self._shrink()
        return before[~np.isin(before, self.kept)]

    def revalue(self, batch: Offered) -> None:
        """Take new values of stored samples; one that is not finite leaves the old."""
        values = batch.scores("value").tolist()
        self._rank_by(lot=False)
        for (key, _), value in zip(batch.numbered(), values, strict=True):
            if key in self._labels:
                self._store_of(self._labels[key]).refresh(key, value)

    def _scores(self, batch: Offered) -> Floats:
        self._rank_by(lot=batch.values is None)
        return self._lot.draw(len(batch)) if self._by_lot else batch.scores("value")

    def _rank_by(self, lot: bool) -> None:
        """Make what is stored comparable to what comes: random keys or values on both sides."""
        if lot != self._by_lot:
            self._by_lot = lot
            ranks = self._lot.draw(len(self)).tolist() if lot else [_UNVALUED] * len(self)
            for (key, label), rank in zip(self._labels.items(), ranks, strict=True):
                self._store_of(label).refresh(key, rank)

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        store = self._stores.get(label, self._stores.get(_ANY))
        if store is None:
            return False, None
        gone = store.offer(key, score)
        return key in store, gone

    def _again(self, key: int, score: float) -> None:
        if not self._by_lot:  # a second draw would favour what is seen often
            self._store_of(self._labels[key]).refresh(key, score)

    def _forget(self, key: int) -> None:
        for store in self._stores.values():
            store.discard(key)

    def _store_of(self, label: int) -> ValueStore:
        return self._stores[label if label in self._stores else _ANY]

    def _places(self, quota: ArrayLike | None) -> dict[int, int]:
        if quota is None:
            return {_ANY: self.capacity}
        places = np.asarray(quota)
        if places.ndim != 1 or (places.size and (places.dtype.kind not in "iu" or min(places) < 0)):
            raise ValueError(f"quota: expected whole numbers of 0 or more, got {quota!r}")
        if places.sum() > self.capacity:
            raise ValueError(f"quota: {places.sum()} places, but the capacity is {self.capacity}")
        return {label: n for label, n in enumerate(places.tolist()) if n}

    def state_dict(self) -> dict[str, Any]:
        """Return the plan, the stored samples with their values, and the generator."""
        stored = {e[2]: e for store in self._stores.values() for e in store.entries()}
        entries = [stored[key] for key in self._labels]
        return super().state_dict() | {
            "values": np.array([value for value, _, _ in entries], dtype=np.float64),
            "arrivals": np.array([arrival for _, arrival, _ in entries], dtype=np.int64),
            "stores": [[label, s.capacity, s.clock] for label, s in self._stores.items()],
            "by-lot": self._by_lot,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        self._by_lot = bool(state["by-lot"])
        entries: dict[int, list[Any]] = {int(label): [] for label, _, _ in state["stores"]}
        columns = (state[name].tolist() for name in ("values", "arrivals", "keys", "labels"))
        for value, arrival, key, label in zip(*columns, strict=True):
            entries[label if label in entries else _ANY].append((value, arrival, key))
        self._stores, free = {}, self.capacity
        for label, places, clock in state["stores"]:
            store = self._stores[int(label)] = ValueStore(min(int(places), free))
            store.restore(entries[int(label)], int(clock))
            free -= store.capacity
        super().load_state_dict(state)

    def _shrink(self) -> None:
        if len(self) == sum(map(len, self._stores.values())):
            return
        stored = set().union(*(store.keys() for store in self._stores.values()))
        self._labels = {key: label for key, label in self._labels.items() if key in stored}
