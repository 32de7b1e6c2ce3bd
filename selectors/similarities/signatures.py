"""MinHash signatures of supports: a few hundred bytes that show how similar two clients are.

*Index-Overlap Similarity* (IOS), appendix A. Each of h hash functions orders all indices; a support
is signed by its first index in each order. Two signatures agree at a place with the probability of
their supports' Jaccard similarity (Lemma E.1). Hash values have 32 bits: half the bytes of the
paper's 64, and enough to distinguish the first two of some millions of indices.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, one_of
from .index_overlap import checked_support
from .signed_overlap import checked_codes, split_codes

Signature = NDArray[np.uint32]

SCHEMES = ("independent", "one-permutation")

_RANGE = 2**32  # of hash values, and so of indices
_CHUNK = 8192  # indices hashed at a time


class Hashing:
    """Signs supports. Clients and server that are to agree need the same three arguments.

    - ``hashes``: length h of a signature. The standard error of a Jaccard estimate is sqrt(J (1 -
      J) / h).
    - ``seed``: of the hash functions.
    - ``scheme``: h hash functions as in the paper, or one, whose range is divided into h bins: each
      index is hashed once instead of h times. The estimate is as good while a support has many more
      than h indices; with fewer, bins are empty, are filled from others, and the estimate is
      noisier.

    >>> Hashing(4, seed=0).sign([1, 2, 3]).shape
    (4,)
    """

    def __init__(self, hashes: int, seed: int = 0, scheme: str = "independent") -> None:
        at_least(1, hashes=hashes)
        one_of(SCHEMES, scheme=scheme)
        self.hashes, self.seed, self.scheme = hashes, seed, scheme
        rng = np.random.default_rng(seed)
        self._key = rng.integers(_RANGE, dtype=np.uint32)
        self._factors = rng.integers(_RANGE, size=(hashes, 1), dtype=np.uint32) | np.uint32(1)
        if scheme == "one-permutation":  # for each bin, in which order it asks the others
            bins = np.tile(np.arange(hashes), (hashes, 1))
            self._detours = rng.permuted(bins, axis=1)

    def sign(self, support: ArrayLike) -> Signature:
        """Return the signature of a support of indices below 2^32."""
        mixed = self._hashed(checked_support(support))
        return self._least(mixed) if self.scheme == "independent" else self._least_in_bins(mixed)

    def sign_changes(self, codes: ArrayLike) -> Signature:
        """Return the signature of the codes of :mod:`selectors.similarities.signed_overlap`.

        It is the signature of the indices, in which the lowest bit is replaced by the sign of the
        first index in each order. Two signatures agree at a place in all bits if both clients
        changed one parameter in the same direction, and in all bits but the lowest if they changed
        it in opposite directions.
        """
        if self.scheme != "independent":
            raise ValueError(f"scheme: expected 'independent' for signs, got {self.scheme!r}")
        indices, signs = split_codes(checked_codes(codes))
        mixed = self._hashed(indices)
        grew, fell = (self._least(mixed[signs == way]) for way in (1, -1))
        lowest = np.minimum(grew, fell) & np.uint32(_RANGE - 2)
        return np.asarray(lowest | (grew <= fell).astype(np.uint32))

    def _hashed(self, indices: NDArray[np.int64]) -> Signature:
        if indices[-1] >= _RANGE:
            raise ValueError(f"support: expected indices below {_RANGE}, got {indices[-1]}")
        return _mixed(indices.astype(np.uint32) ^ self._key)

    def _least(self, mixed: Signature) -> Signature:
        """Return the least value of each function x -> factor x modulo 2^32.

        Odd numbers times an odd factor: each x is sent to all odd numbers with equal chance.
        """
        odd = mixed | np.uint32(1)
        least = np.full(self.hashes, _RANGE - 1, dtype=np.uint32)
        buffer = np.empty((self.hashes, min(_CHUNK, odd.size)), dtype=np.uint32)
        for start in range(0, odd.size, _CHUNK):
            chunk = odd[start : start + _CHUNK]
            values = np.multiply(self._factors, chunk, out=buffer[:, : chunk.size])
            np.minimum(least, values.min(axis=1), out=least)
        return least

    def _least_in_bins(self, mixed: Signature) -> Signature:
        """Return the least value in each bin; an empty bin takes that of a random full one."""
        ordered = np.sort(mixed)
        edges = -(-np.arange(self.hashes + 1) * _RANGE // self.hashes)
        firsts = np.searchsorted(ordered, edges)
        full = firsts[:-1] < firsts[1:]
        least = ordered[np.minimum(firsts[:-1], ordered.size - 1)]
        # Both of two supports follow the same detour, so that they still agree with probability J.
        empty = np.flatnonzero(~full)
        first_full = np.argmax(full[self._detours[empty]], axis=1)
        least[empty] = least[self._detours[empty, first_full]]
        return least


def _mixed(values: Signature) -> Signature:
    """Return a fixed permutation of the 32-bit numbers in which no pattern of indices is left.

    Supports hold runs of neighbours, which linear functions alone would keep apart too evenly.
    """
    values = values ^ (values >> np.uint32(16))
    values *= np.uint32(0x85EBCA6B)
    values ^= values >> np.uint32(13)
    values *= np.uint32(0xC2B2AE35)
    values ^= values >> np.uint32(16)
    return values
