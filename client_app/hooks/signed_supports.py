"""Which parameters a client changed most, and in which direction: indices and signs, no sizes."""

import numpy as np

from ...core.learning.fisher import trainable_shapes
from ...core.learning.job import Outcomes
from ...core.wire.supports import encode_signed_support
from ...selectors.similarities.signatures import Hashing, Signature
from ...selectors.similarities.signed_overlap import Codes, split_codes, top_k_changes
from ..batch import ClientBatch
from .supports import Floats, IndexSignatures, SupportTeller, last

_SECTION = "changes"


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
            row.state[_SECTION] = {"codes": codes}
            found.append(codes)
        return found

    def held(self, batch: ClientBatch) -> list[Codes]:
        """Return the changes that the clients sent last."""
        return [np.asarray(own["codes"], dtype=np.int64) for own in last(batch, _SECTION)]

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
