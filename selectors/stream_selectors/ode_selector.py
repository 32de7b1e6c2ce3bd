"""ODE on a device: the most valuable samples of the labels that the server's plan assigns to it.

Gong et al.: *To Store or Not? Online Data Selection for Federated Learning with Limited Storage*,
sections 3.2 and 3.3; the values are those of ``ode.py``, the plan that of ``coordination.py``.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import Floats, Ints, Offered, StreamSelector
from .value_store import ValueStore

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
        """Values of what is stored; NaN where there is none."""
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
        """Return the plan, what is stored with its values, and the generator."""
        stored = {e[2]: e for store in self._stores.values() for e in store.entries()}
        entries = [stored[key] for key in self._labels]
        return super().state_dict() | {
            "values": np.array([value for value, _, _ in entries], dtype=np.float64),
            "arrivals": np.array([arrival for _, arrival, _ in entries], dtype=np.int64),
            "stores": [[label, s.capacity, s.clock] for label, s in self._stores.items()],
            "by-lot": self._by_lot,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned; what is too much for the capacity goes."""
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
