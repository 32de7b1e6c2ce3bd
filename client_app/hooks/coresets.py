"""A client's coreset: chosen now and then, kept in between, trained on in every round."""

import zlib
from time import perf_counter
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.batches import batch_seed
from ...core.learning.gradient_rows import rows_and_rivals, sample_rows
from ...core.methods.catalogue import methods
from ...core.methods.coreset import Coreset as CoresetSettings
from ...core.methods.coreset import CoresetMethod
from ...core.tasks import Samples, Split
from ...core.wire.arrays import from_record
from ...core.wire.keys import CORESET, TARGETS
from ...core.wire.records import record_at
from ...selectors.data_selectors.agreement import draw, own_means
from ...selectors.data_selectors.budgets import budget_count
from ...selectors.data_selectors.coreset import Coreset, RuleSettings, choose_coreset
from ...selectors.data_selectors.doubt import chances
from ...selectors.data_selectors.trust import label_evidence, remembered
from ...selectors.data_selectors.uniform import uniform
from ..handlers.training import trainer_of
from ..request import ClientHook, ClientRequest

_KEPT = "coreset"  # section of the client's state
_FEWEST = 10  # agreement trains on at least one in this many of the budget, trusted or not


class ChosenCoreset(ClientHook):
    """Train on a coreset.

    A rule that matches the server's gradients chooses whenever a message brings them, any other
    rule when the coreset is old enough; facility location, which looks at inputs only, chooses
    once. Agreement keeps a pool of trusted samples, from which every round draws, and what it has
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
        self.redraws = self.rule == "agreement"

    def before(self, request: ClientRequest) -> None:
        """Put the coreset, or what stands in for it, in place of the client's data."""
        started = perf_counter()
        kept = _still_valid(request)
        if self._chooses_now(request, kept):
            kept = self._new_choice(request, kept)
        if kept is None:
            request.state.pop(_KEPT, None)
            stand_in = _random_subset(request, self._budget(request))
            train_on(request, stand_in, since=0, seconds=perf_counter() - started)
            return
        indices, weights = kept["indices"], kept["weights"] if self.settings.use_weights else None
        if self.redraws:
            rng = _rng(request, request.round)
            count = min(self._budget(request), round(float(kept["weights"].sum())))
            indices, weights = indices[draw(kept["weights"], max(1, count), rng)], None
            if request.message.metadata.message_type == "train":
                trained = kept["trained"].copy()  # the state may share it with what was saved
                trained[indices] = True
                kept = {**kept, "trained": trained}
        request.state[_KEPT] = kept
        since = int(kept["round"])
        train_on(request, indices, weights, since=since, seconds=perf_counter() - started)

    def _chooses_now(self, request: ClientRequest, kept: dict[str, Any] | None) -> bool:
        if request.message.metadata.message_type != "train":
            return False  # only a sample of its training: what is kept, or a random subset, will do
        if self.guided:
            return bool(_guidance(request))
        if self.method.looks_at == "gradients" and request.round <= self.settings.first_round:
            return False
        if kept is None:
            return True
        changes = self.method.looks_at != "inputs"
        return changes and request.round - int(kept["round"]) >= self.settings.every

    def _new_choice(
        self, request: ClientRequest, kept: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return what to keep of a new choice; None if no sample could be used."""
        chosen, more = self._trust(request, kept) if self.redraws else (self._choose(request), {})
        if not len(chosen):
            return None
        return {
            "indices": chosen.indices.astype(np.int64),
            "weights": chosen.weights.astype(np.float32),
            "round": request.round,
            "data": fingerprint(request.data),
            **more,
        }

    def _trust(
        self, request: ClientRequest, kept: dict[str, Any] | None
    ) -> tuple[Coreset, dict[str, NDArray[Any]]]:
        """Look at all labels once more; return those trusted now, and what to remember."""
        model, labels = trainer_of(request.config).model, request.data.y.numpy()
        rows, rivals = rows_and_rivals(model, request.arrays, request.data)
        guidance = _guidance(request) if self.guided else {}
        targets = guidance["means"] if self.guided else own_means(rows, labels)
        evidence = label_evidence(rows, labels, targets, rivals)
        before, trained = (kept[k] for k in ("trust", "trained")) if kept else (None, labels < 0)
        trust = remembered(before, evidence, trained, self.settings.memory)
        fewest = -(-self._budget(request) // _FEWEST)
        weights = chances(trust, labels, guidance.get("standards"), at_least=fewest)
        pool = np.flatnonzero(weights)
        more = {"trust": trust.astype(np.float32), "trained": np.zeros(len(labels), dtype=bool)}
        return Coreset(pool, weights[pool]), more

    def _choose(self, request: ClientRequest) -> Coreset:
        data, settings = request.data, self.settings
        labels = request.task.problem.strata(data.y.numpy())
        rng = _rng(request, request.round)
        if self.rule == "random":
            indices = uniform(len(data), self._budget(request), rng)
            return Coreset(indices, np.ones(len(indices)))
        targets = _guidance(request)["means"] if self.guided else None
        if targets is not None and not self.per_class:
            targets = targets.reshape(1, -1)
        return choose_coreset(
            self.rule,
            self._rows(request),
            labels if self.per_class else np.zeros_like(labels),
            self._budget(request),
            targets=targets,
            rng=rng,
            settings=RuleSettings(
                ridge=settings.ridge,
                step=settings.step,
                residual=settings.residual,
                radius=settings.radius,
                equal=settings.class_budgets == "equal",
            ),
        )

    def _rows(self, request: ClientRequest) -> NDArray[Any]:
        if self.method.looks_at == "inputs":
            return request.data.x.flatten(1).numpy()
        model = trainer_of(request.config).model
        rule, per_class = self.rule, self.per_class
        problem = request.task.problem
        return sample_rows(model, request.arrays, request.data, rule, per_class, problem)

    def _budget(self, request: ClientRequest) -> int:
        size, budget = len(request.data), self.settings.budget
        return size if budget == 1 else budget_count(budget, size)


def train_on(
    request: ClientRequest,
    indices: NDArray[Any],
    weights: NDArray[np.float32] | None = None,
    *,
    since: int,
    seconds: float,
) -> None:
    """Let a client train on some of its samples, and report them to the server.

    Parameters
    ----------
    request : ClientRequest
        Whose data are narrowed down.
    indices : array of int
        Positions of the samples; at least one.
    weights : array of float, optional
        How much each counts; those that count nothing are left out.
    since : int
        Round in which they were chosen; 0 if they only stand in for a choice.
    seconds : float
        What it took.
    """
    told: dict[str, Any] = {"round": since, "size": len(indices), "seconds": seconds}
    clean = request.holdings.clean
    simulated = "partition-id" in request.context.node_config  # a device's labels stay private
    if simulated and since == request.round:
        strata = request.task.problem.strata(request.data.y.numpy()[indices])
        told["labels"] = np.bincount(strata).tolist()
    if simulated and request.config.noise != "none" and len(clean) == len(request.data):
        told["clean"] = float(clean[torch.from_numpy(indices)].float().mean())
    request.reply[CORESET] = ConfigRecord(told)
    if weights is not None:
        indices, weights = indices[weights > 0], weights[weights > 0]
    places = torch.from_numpy(np.asarray(indices, dtype=np.int64))
    request.chosen = request.data.select(places)
    request.weights = weights


def fingerprint(data: Samples) -> str:
    """Return what distinguishes data from others of the same client: number and checksum.

    Of data that are read lazily, the checksum is of the targets only.

    >>> data = Split(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    >>> fingerprint(data) == fingerprint(Split(torch.ones(3, 2), data.y))
    False
    """
    columns = (data.x, data.y) if isinstance(data, Split) else (data.y,)
    sums = (zlib.crc32(column.contiguous().numpy().view("uint8").data) for column in columns)
    return f"{len(data)}-{'-'.join(f'{one:08x}' for one in sums)}"


def _still_valid(request: ClientRequest) -> dict[str, Any] | None:
    """Return the coreset that was kept, unless the data are no longer those it was chosen from."""
    kept: dict[str, Any] | None = request.state.get(_KEPT)
    return kept if kept is not None and kept["data"] == fingerprint(request.data) else None


def _guidance(request: ClientRequest) -> dict[str, NDArray[Any]]:
    """Return what the server sends to choose by: class means, and what labels are held to."""
    record = record_at(request.message.content, TARGETS, ArrayRecord)
    return {} if record is None else from_record(record)


def _random_subset(request: ClientRequest, budget: int) -> NDArray[np.int64]:
    """Return a subset that is the same in every round, without samples that are not finite."""
    data = request.data
    usable = np.arange(len(data))
    if isinstance(data, Split):
        finite = torch.isfinite(data.x.flatten(1)).all(1).nonzero().flatten().numpy()
        usable = finite if len(finite) else usable
    return usable[uniform(len(usable), budget, _rng(request, 0))]


def _rng(request: ClientRequest, number: int) -> np.random.Generator:
    return np.random.default_rng(batch_seed(request.config.seed, request.key, number))
