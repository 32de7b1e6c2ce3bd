"""Which parameters a client changed most, and in which direction: indices and signs, no sizes."""

import numpy as np

from ...core.learning.fisher import trainable_shapes
from ...core.learning.job import Job
from ...core.wire.supports import encode_signed_support
from ...selectors.similarities.signatures import Hashing, Signature
from ...selectors.similarities.signed_overlap import Codes, split_codes, top_k_changes
from ..handlers.training import trainer_of
from ..request import ClientRequest
from .supports import Arrays, Floats, IndexSignatures, SupportTeller

_SECTION = "changes"


class SignedChanges(SupportTeller):
    """The indices of the largest changes that local training made, each with its sign.

    A support is an array of codes, see :mod:`selectors.similarities.signed_overlap`.
    """

    def find(self, request: ClientRequest, job: Job, trained: Arrays) -> Codes:
        """Return the largest changes; what training left as it was has none."""
        names = trainable_shapes(trainer_of(request.config).model)
        update: Floats = np.concatenate(
            [(trained[name] - job.arrays[name]).ravel().astype(np.float32) for name in names]
        )
        codes = np.empty(0, dtype=np.int64)
        if update.any():
            codes = top_k_changes(update, self.count(np.abs(update)), self.layers(request))
        request.state[_SECTION] = {"codes": codes}
        return codes

    def held(self, request: ClientRequest) -> Codes:
        """Return the changes that the client sent last."""
        if _SECTION not in request.state:
            raise ValueError(f"client {request.key!r} has not trained yet: it holds no support")
        return np.asarray(request.state[_SECTION]["codes"], dtype=np.int64)

    def encoded(self, support: Codes, size: int, tag: int) -> bytes:
        """Return indices and signs as bytes."""
        return encode_signed_support(*split_codes(support), size, tag)

    def signature(self, hashing: Hashing, support: Codes) -> Signature:
        """Return the signature of indices and signs."""
        return hashing.sign_changes(support)


class ChangeSignatures(IndexSignatures):
    """Send only a MinHash signature of the largest changes and their signs."""

    kind = SignedChanges
