"""Which parameters matter most to a client: it sends the server their indices, never a value.

Index-Overlap Similarity, sections 3.1 to 3.3: the client estimates the diagonal of the Fisher
information, averages it over rounds, and sends the indices of the largest, or a signature of these.
Where it sends signatures, the server may ask for the indices themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.fisher import fisher_diagonals, trainable_shapes
from ...core.learning.job import Outcomes
from ...core.learning.train_settings import TrainSettings
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.ios import HASHES, PAST, Ios
from ...core.tasks import Samples
from ...core.tasks.errors import SayableError
from ...core.wire.keys import PAYLOAD, SIGNATURE, SIZE, SUPPORT
from ...core.wire.records import entries, filled
from ...core.wire.supports import (
    encode_signature,
    encode_signed_support,
    encode_supports,
    model_tag,
)
from ...selectors.similarities.importance_average import averaged
from ...selectors.similarities.index_overlap import (
    choose_k,
    choose_ks,
    top_k_supports,
    usual_size,
)
from ...selectors.similarities.signatures import Hashing, Signature
from ...selectors.similarities.signed_overlap import Codes, split_codes, top_k_changes
from ..batch import ClientBatch
from .base import ClientHook

_SECTION = "importance"

Models = Sequence[Mapping[str, NDArray[Any]]]
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class SupportTeller(ClientHook):
    """Send a support, or its signature, with every training reply; none if nothing matters."""

    trains = True  # whether the support is known only after local training
    passes = 0  # over the client's samples, besides local training
    k_max = 0.25  # share of the parameters that a support may have

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Ios]
        self.seed = config.seed
        cohorts = methods("cohorts")[config.cohorts]  # does anything there read signatures?
        signs = config[Ios].signatures and "signatures" in cohorts.reads
        self.form = SIGNATURE if signs else PAYLOAD

    def find(self, batch: ClientBatch, outcomes: Outcomes | None) -> list[Indices]:
        """Return the supports, empty where there is none; without outcomes, before training."""
        raise NotImplementedError

    def held(self, batch: ClientBatch) -> list[Indices]:
        """Return the supports that the clients sent last, of what they remember."""
        raise NotImplementedError

    def encoded(self, supports: list[Indices], size: int, tag: int) -> list[bytes]:
        """Return what is sent of supports of the model with this size and tag."""
        return encode_supports(supports, size, tag)

    def signature(self, hashing: Hashing, support: Indices) -> Signature:
        """Return the signature of a support."""
        return hashing.sign(support)

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Find the supports and send them as the run says."""
        self.tell(batch, self.supports(batch, outcomes), self.form)
        return outcomes

    def supports(self, batch: ClientBatch, outcomes: Outcomes | None) -> list[Indices]:
        """Return the supports, found once even if two hooks want them."""
        if batch.supports is None:
            batch.supports = self.find(batch, outcomes)
        return batch.supports

    def tell(self, batch: ClientBatch, supports: list[Indices], form: str) -> None:
        """Add supports, or their signatures, to the replies."""
        rows = [row for row, support in enumerate(supports) if support.size]
        shapes = trainable_shapes(batch.side.trainer.model)
        size, tag = sum(math.prod(shape) for shape in shapes.values()), model_tag(shapes)
        some = [supports[row] for row in rows]
        if form == SIGNATURE:
            hashing = Hashing(HASHES, seed=self.seed)
            signed = [(self.signature(hashing, own), own.size) for own in some]
            sent = [encode_signature(own, count, size, tag) for own, count in signed]
        else:
            sent = self.encoded(some, size, tag) if some else []
        column = batch.records.setdefault(SUPPORT, [None] * len(batch))
        for row, data in zip(rows, sent, strict=True):
            more = {} if column[row] is None else entries(column[row])
            column[row] = filled(ConfigRecord, {**more, form: data})

    def counts(self, importance: Floats) -> Indices | int:
        """Return K, for all rows or each: the share of parameters that is set, or as usual."""
        size = int(importance.shape[1])
        if self.settings.share:
            return max(1, round(self.settings.share * size))
        return self.usual(importance, max(1, round((self.settings.most or self.k_max) * size)))

    def usual(self, importance: Floats, most: int) -> Indices | int:
        """Return K where no share is set."""
        return usual_size(int(importance.shape[1]), most)


class ImportantIndices(SupportTeller):
    """The indices of the parameters with the largest average importance."""

    usually = "received"
    parts = 1

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.at = self.usually if self.settings.at == "auto" else self.settings.at
        self.trains = self.at != "received"
        self.passes = 0 if self.at == "training" else 1

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Ask for the squared gradients of local steps, where importance is made of them."""
        if self.at != "training":
            return settings
        steps = -(-self.settings.samples // settings.batch_size)
        return replace(settings, squares=self.parts, squared_steps=steps)

    def find(self, batch: ClientBatch, outcomes: Outcomes | None) -> list[Indices]:
        """Bring the average importance up to date and return its largest indices."""
        models: Models = batch.models
        if self.trains and outcomes is not None:
            models = [own.arrays for own in outcomes]
        measured = self._importance(batch, models)
        past = [row.state.get(_SECTION, {"rounds": 0, "average": None}) for row in batch.rows]
        nothing = np.zeros(measured.shape[1], dtype=np.float32)
        before = [nothing if own["average"] is None else own["average"] for own in past]
        importance = averaged(np.stack(before), measured, PAST)
        for row, own, average in zip(batch.rows, past, importance, strict=True):
            row.state[_SECTION] = {"rounds": int(own["rounds"]) + 1, "average": average.copy()}
        return self._largest(importance, batch)

    def held(self, batch: ClientBatch) -> list[Indices]:
        """Return the supports that the clients sent last."""
        return self._largest(np.stack([own["average"] for own in last(batch, _SECTION)]), batch)

    def _largest(self, importance: Floats, batch: ClientBatch) -> list[Indices]:
        return top_k_supports(importance, self.counts(importance))

    def _importance(self, batch: ClientBatch, models: Models) -> Floats:
        if batch.squares is not None:  # none where an app of the user's own trains
            return np.asarray(batch.squares.sum(axis=1))
        drawn = map(self._drawn, batch.data, batch.seeds)
        trainer = batch.side.trainer
        return fisher_diagonals(trainer.model, trainer.problem.loss, models, list(drawn))

    def _drawn(self, data: Samples, seed: int) -> Samples:
        """Return as many samples as are looked at, at random: files are often sorted by class."""
        if not 0 < self.settings.samples < len(data):
            return data
        drawn = np.random.default_rng(seed).permutation(len(data))
        return data.select(torch.from_numpy(np.sort(drawn[: self.settings.samples])))


class PaperIndices(ImportantIndices):
    """The paper's supports: importance over local training, K by Algorithm 1."""

    usually = "training"
    k_max = 0.2  # section 6

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        if self.settings.stability:
            self.parts = self.settings.resamples
            self.passes *= 2

    def usual(self, importance: Floats, most: int) -> Indices | int:
        """Return as many as cover enough of the importance."""
        return choose_ks(importance, self.settings.coverage, most)

    def held(self, batch: ClientBatch) -> list[Indices]:
        """Return the supports that the clients sent last."""
        kept = last(batch, _SECTION)
        sizes = np.array([own["k"] for own in kept])
        return top_k_supports(np.stack([own["average"] for own in kept]), sizes)

    def tell(self, batch: ClientBatch, supports: list[Indices], form: str) -> None:
        """Add each client's own K to what it sends."""
        super().tell(batch, supports, form)
        for row, record in enumerate(batch.records[SUPPORT]):
            if record is not None and self in batch.memo:
                record[SIZE] = int(batch.memo[self][row])

    def _largest(self, importance: Floats, batch: ClientBatch) -> list[Indices]:
        own = np.array(np.broadcast_to(self.counts(importance), len(batch)), dtype=np.int64)
        parts = batch.memo.pop((self, "parts"), None)
        if parts is not None and not self.settings.share:
            most = max(1, round((self.settings.most or self.k_max) * importance.shape[1]))
            # By coverage, or of the two above it the first that is stable (lines 6 to 9)
            coverage, stability = self.settings.coverage, self.settings.stability
            pairs = zip(importance, parts, strict=True)
            own[:] = [choose_k(row, coverage, most, again, stability) for row, again in pairs]
        batch.memo[self] = own
        told = [(row.sent(SUPPORT) or {}).get(SIZE) for row in batch.rows]
        used = [min(int(k or mine), importance.shape[1]) for k, mine in zip(told, own, strict=True)]
        for row, k in zip(batch.rows, used, strict=True):
            row.state[_SECTION] = {**row.state[_SECTION], "k": k}
        return top_k_supports(importance, np.array(used))

    def _importance(self, batch: ClientBatch, models: Models) -> Floats:
        importance = super()._importance(batch, models)
        if self.settings.stability and batch.squares is not None:
            whole = importance[:, None]  # in place of parts that no step was in
            batch.memo[self, "parts"] = np.where(
                batch.squares.any(axis=2, keepdims=True), batch.squares, whole
            )
        elif self.settings.stability:
            columns = [
                self._of_part(batch, models, part) for part in range(self.settings.resamples)
            ]
            batch.memo[self, "parts"] = np.stack(columns, axis=1)
        return importance

    def _of_part(self, batch: ClientBatch, models: Models, part: int) -> Floats:
        """Return the importance by every r-th sample of each client; of all where these are few."""
        some = []
        for data, seed in zip(batch.data, batch.seeds, strict=True):
            drawn = self._drawn(data, seed)
            places = torch.arange(part, len(drawn), self.settings.resamples)
            some.append(drawn.select(places) if len(places) else drawn)
        trainer = batch.side.trainer
        return fisher_diagonals(trainer.model, trainer.problem.loss, models, some)


class IndexSignatures(ClientHook):
    """Send only a MinHash signature of the support: enough to see who overlaps with whom."""

    kind: type[SupportTeller] = ImportantIndices

    def __init__(self, config: RunConfig) -> None:
        hook = methods("similarity")[config.similarity].hook
        self.teller: SupportTeller = load(hook)(config) if hook else self.kind(config)

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Ask for what the supports are made of."""
        return self.teller.training(settings)

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Find the supports and send their signatures."""
        self.teller.tell(batch, self.teller.supports(batch, outcomes), SIGNATURE)
        return outcomes


def last(batch: ClientBatch, section: str) -> list[dict[str, Any]]:
    """Return what clients remember of their last supports; an error if one has none."""
    for row in batch.rows:
        if section not in row.state:
            raise SayableError("this client has not trained yet: it holds no support")
    return [row.state[section] for row in batch.rows]


_CHANGES = "changes"


class SignedChanges(SupportTeller):
    """The indices and signs of the largest changes, coded as in ``similarities.signed_overlap``."""

    def find(self, batch: ClientBatch, outcomes: Outcomes | None) -> list[Codes]:
        """Return the largest changes; what training left as it was has none."""
        assert outcomes is not None, "there is no change without training"
        updates = _trained_changes(batch, outcomes)
        counts = np.broadcast_to(self.counts(np.abs(updates)), len(updates)).tolist()
        found = []
        for row, update, count in zip(batch.rows, updates, counts, strict=True):
            nothing = np.empty(0, dtype=np.int64)
            codes = top_k_changes(update, count) if update.any() else nothing
            row.state[_CHANGES] = {"codes": codes}
            found.append(codes)
        return found

    def held(self, batch: ClientBatch) -> list[Codes]:
        """Return the changes that the clients sent last."""
        return [np.asarray(own["codes"], dtype=np.int64) for own in last(batch, _CHANGES)]

    def encoded(self, supports: list[Codes], size: int, tag: int) -> list[bytes]:
        """Return indices and signs as bytes."""
        return [encode_signed_support(*split_codes(support), size, tag) for support in supports]

    def signature(self, hashing: Hashing, support: Codes) -> Signature:
        """Return the signature of indices and signs."""
        return hashing.sign_changes(support)


class ChangeSignatures(IndexSignatures):
    """Send only a MinHash signature of the largest changes and their signs."""

    kind = SignedChanges


def _trained_changes(batch: ClientBatch, outcomes: Outcomes) -> Floats:
    """Return the changes of the parameters that are trained, without buffers: a row a client."""
    names = trainable_shapes(batch.side.trainer.model)
    rows = zip(batch.models, outcomes, strict=True)
    return np.stack(
        [
            np.concatenate(
                [(own.arrays[name] - model[name]).ravel().astype(np.float32) for name in names]
            )
            for model, own in rows
        ]
    )
