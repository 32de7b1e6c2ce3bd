"""A client's coreset: chosen every few rounds, kept in between, and used in every round."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.gradients import rows_and_rivals_of_all, sample_rows_of_all
from ...core.learning.job import batch_seed
from ...core.learning.train_settings import local_steps, train_settings
from ...core.methods.catalogue import methods
from ...core.methods.coreset import CoresetMethod, CoresetSettings
from ...core.tasks import Split
from ...core.wire.keys import CORESET, STEPS, TARGETS, WORK
from ...core.wire.records import filled
from ...selectors.data_selectors.budgets import budget_count
from ...selectors.data_selectors.confirmation import draw, own_means
from ...selectors.data_selectors.coreset import ChosenSamples, RuleSettings, choose_coreset
from ...selectors.data_selectors.doubt import chances
from ...selectors.data_selectors.plain import uniform
from ...selectors.data_selectors.trust import label_evidence, remembered
from ..batch import Arrays, ClientBatch, ClientRow
from .base import ClientHook

_KEPT = "coreset"  # section of the client's state
_FEWEST = 10  # trusted trains on at least one in this many of the budget, trusted or not

Kept = dict[str, Any]


class ChosenCoreset(ClientHook):
    """Train on a coreset.

    A rule that matches the server's gradients chooses whenever a message brings them, any other
    rule when the coreset is old enough; facility location, which looks at inputs only, chooses
    once. Trusted keeps a pool of trusted samples, from which every round draws, and what it has
    learned about all samples so far. A client that has no coreset (before the first choice, or
    because its data changed or nothing is known about them) trains on a random subset of the
    same size.
    """

    chooses_data = True

    def __init__(self, config: RunConfig) -> None:
        method = methods("data-selector")[config.data_selector]
        assert isinstance(method, CoresetMethod)
        self.method, self.settings = method, config[CoresetSettings]
        self.rule, self.target = method.rule, method.target_of(self.settings)
        self.guided, self.per_class = self.target == "server", method.per_class_of(self.settings)
        self.first_round = method.first_round_of(self.settings)
        self.redraws = self.rule == "trusted"
        self.by_speed = config.work == "coreset-by-speed"  # the server says how large they are

    def before(self, batch: ClientBatch) -> None:
        """Put coresets, or what stands in for them, in place of the clients' data."""
        started = perf_counter()
        if self.by_speed:  # a coreset stands for all data of a slow client
            batch.counts_for = [len(row.data) for row in batch.rows]
        kept = [self._fitting(row, _still_valid(row)) for row in batch.rows]
        choosing = [row for row in batch.rows if self._chooses_now(row, kept[row.place])]
        for row, chosen in zip(choosing, self._new_choices(batch, choosing, kept), strict=True):
            kept[row.place] = chosen
        seconds = (perf_counter() - started) / len(batch)
        for row, own in zip(batch.rows, kept, strict=True):
            self._use(row, own, seconds)

    def _fitting(self, row: ClientRow, kept: Kept | None) -> Kept | None:
        """Return what is kept, unless the server wants a coreset of clearly another size."""
        if kept is None or not self.by_speed:
            return kept
        wanted, size = self._budget(row), len(kept["indices"])
        return kept if wanted < len(row.data) and 0.8 * wanted <= size <= 1.2 * wanted else None

    def _use(self, row: ClientRow, kept: Kept | None, seconds: float) -> None:
        """Let a client train on what it keeps, or on a random subset."""
        if kept is None:
            row.state.pop(_KEPT, None)
            train_on(row, _random_subset(row, self._budget(row)), since=0, seconds=seconds)
            return
        indices, weights = kept["indices"], kept["weights"] if self.settings.use_weights else None
        if self.redraws:
            count = min(self._budget(row), round(float(kept["weights"].sum())))
            drawn = draw(kept["weights"], max(1, count), _rng(row, row.round))
            indices, weights = indices[drawn], None
            if row.batch.trains:
                trained = kept["trained"].copy()  # the state may share it with what was saved
                trained[indices] = True
                kept = {**kept, "trained": trained}
        row.state[_KEPT] = kept
        train_on(row, indices, weights, since=int(kept["round"]), seconds=seconds)

    def _chooses_now(self, row: ClientRow, kept: Kept | None) -> bool:
        if not row.batch.trains:
            return False  # only a sample of its training: what is kept, or a random subset, will do
        if self.guided:
            return row.batch.requests.record(TARGETS, row.place) is not None
        if self.method.looks_at == "gradients" and row.round <= self.first_round:
            return False
        if kept is None:
            return not self.by_speed or self._budget(row) < len(row.data)
        changes = self.method.looks_at != "inputs"
        return changes and row.round - int(kept["round"]) >= self.settings.every

    def _new_choices(
        self, batch: ClientBatch, rows: Sequence[ClientRow], kept: Sequence[Kept | None]
    ) -> list[Kept | None]:
        """Return what to keep of new choices; None where no sample could be used."""
        if not rows:
            return []
        goals = [(row.arrays(TARGETS) if self.guided else None) or {} for row in rows]
        if self.redraws:
            before = [kept[row.place] for row in rows]
            pairs = list(map(self._trust, rows, before, goals, _evidence(batch, rows, goals)))
        else:
            pairs = [(own, {}) for own in map(self._choose, rows, goals, self._rows(batch, rows))]
        return [
            {
                "indices": chosen.indices.astype(np.int64),
                "weights": chosen.weights.astype(np.float32),
                "round": row.round,
                "data": row.data.fingerprint,
                **more,
            }
            if len(chosen)
            else None
            for row, (chosen, more) in zip(rows, pairs, strict=True)
        ]

    def _trust(
        self, row: ClientRow, kept: Kept | None, goals: Arrays, evidence: NDArray[Any]
    ) -> tuple[ChosenSamples, dict[str, NDArray[Any]]]:
        """Look at all labels once more; return those trusted now, and what to remember."""
        labels = row.data.y.numpy()
        before, trained = (kept[k] for k in ("trust", "trained")) if kept else (None, labels < 0)
        trust = remembered(before, evidence, trained)
        fewest = -(-self._budget(row) // _FEWEST)
        weights = chances(trust, labels, goals.get("standards"), at_least=fewest)
        pool = np.flatnonzero(weights)
        more = {"trust": trust.astype(np.float32), "trained": np.zeros(len(labels), dtype=bool)}
        return ChosenSamples(pool, weights[pool]), more

    def _choose(self, row: ClientRow, goals: Arrays, rows: NDArray[Any]) -> ChosenSamples:
        settings = self.settings
        labels = row.side.problem.strata(row.data.y.numpy())
        if self.rule == "random":
            indices = uniform(len(labels), self._budget(row), _rng(row, row.round))
            return ChosenSamples(indices, np.ones(len(indices)))
        targets = goals.get("means")
        if targets is not None and not self.per_class:
            targets = targets.reshape(1, -1)
        return choose_coreset(
            self.rule,
            rows,
            labels if self.per_class else np.zeros_like(labels),
            self._budget(row),
            targets=targets,
            rng=_rng(row, row.round),
            settings=RuleSettings(
                ridge=settings.ridge,
                residual=settings.residual,
                equal=self.method.equal_of(settings),
            ),
        )

    def _rows(self, batch: ClientBatch, rows: Sequence[ClientRow]) -> list[NDArray[Any]]:
        """Return what the rule compares each client's samples by."""
        data = [row.data for row in rows]
        if self.rule == "random":
            return [np.empty(0)] * len(rows)
        if self.method.looks_at == "inputs":
            return [own.x.flatten(1).numpy() for own in data]
        model, problem = batch.side.trainer.model, batch.side.problem
        models = [row.model for row in rows]
        return sample_rows_of_all(model, models, data, self.rule, self.per_class, problem)

    def _budget(self, row: ClientRow) -> int:
        size, budget = len(row.data), self.settings.budget
        if self.by_speed:
            given = row.batch.requests.record(WORK, row.place)
            usual = local_steps(train_settings(row.config, row.round), size)
            return size if given is None else -(-size * min(int(given[STEPS]), usual) // usual)
        return size if budget == 1 else budget_count(budget, size)


def _evidence(
    batch: ClientBatch, rows: Sequence[ClientRow], goals: Sequence[Arrays]
) -> list[NDArray[Any]]:
    """Return what speaks for each label, by the server's class means or the client's own."""
    data = [row.data for row in rows]
    model, models = batch.side.trainer.model, [row.model for row in rows]
    looked = rows_and_rivals_of_all(model, models, data)
    labels = [own.y.numpy() for own in data]
    if not goals[0] or any(goal is not goals[0] for goal in goals):
        means = [
            goal["means"] if goal else own_means(own, y)
            for goal, (own, _), y in zip(goals, looked, labels, strict=True)
        ]
        rivals = [rival for _, rival in looked]
        return list(map(label_evidence, [own for own, _ in looked], labels, means, rivals))
    together, rivals_of_all = (np.concatenate(column) for column in zip(*looked, strict=True))
    found = label_evidence(together, np.concatenate(labels), goals[0]["means"], rivals_of_all)
    return np.split(found, np.cumsum([len(own) for own in labels])[:-1], axis=1)


def train_on(
    row: ClientRow,
    indices: NDArray[Any],
    weights: NDArray[np.float32] | None = None,
    *,
    since: int,
    seconds: float,
) -> None:
    """Let a client train on some of its samples, and report them to the server."""
    told: dict[str, Any] = {"round": since, "size": len(indices), "seconds": seconds}
    clean = row.holdings.clean
    simulated = row.simulated  # a device's labels stay private
    if simulated and since == row.round:
        strata = row.side.problem.strata(row.data.y.numpy()[indices])
        told["labels"] = np.bincount(strata).tolist()
    if simulated and row.config.noise != "none" and len(clean) == len(row.data):
        told["clean"] = float(clean[torch.from_numpy(indices)].float().mean())
    row.reply(CORESET, filled(ConfigRecord, told))
    if weights is not None:
        indices, weights = indices[weights > 0], weights[weights > 0]
    places = torch.from_numpy(np.asarray(indices, dtype=np.int64))
    row.train_on(row.data.select(places), weights)


def _still_valid(row: ClientRow) -> Kept | None:
    """Return the coreset that was kept, unless the data are no longer those it was chosen from."""
    kept: Kept | None = row.state.get(_KEPT)
    return kept if kept is not None and kept["data"] == row.data.fingerprint else None


def _random_subset(row: ClientRow, budget: int) -> NDArray[np.int64]:
    """Return a subset that is the same in every round, without samples that are not finite."""
    data = row.data
    usable = np.arange(len(data))
    if isinstance(data, Split):
        finite = torch.isfinite(data.x.flatten(1)).all(1).nonzero().flatten().numpy()
        usable = finite if len(finite) else usable
    return usable[uniform(len(usable), budget, _rng(row, 0))]


def _rng(row: ClientRow, number: int) -> np.random.Generator:
    return np.random.default_rng(batch_seed(row.config.seed, row.key, number))
