"""An index of MinHash signatures: similar clients are found without comparing all pairs.

*Index-Overlap Similarity* (IOS), appendix A and Algorithm 2. Signatures (``signatures.py``) show
the Jaccard similarity J of two supports, not their overlap S (:func:`overlap_from_jaccard`).
Clients whose signatures agree in a whole band of r = h / b places are candidates; a pair is
retrieved with probability ``1 - (1 - J^r)^b`` (Lemma E.2). Only candidates are scored exactly.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .gram import Floats, centred_cosines
from .index_overlap import overlap_matrix
from .signatures import Hashing, Signature
from .signed_overlap import signed_overlap_matrix


class MinHashIndex:
    """Finds the clients whose supports are likely to be similar to a given one (Algorithm 2).

    - ``hashes``: length of a signature.
    - ``bands``: how many bands it is cut into, a divisor of ``hashes``. More bands find more, and
      more that is not similar.
    - ``seed``, ``scheme``: see :class:`Hashing`.

    >>> index = MinHashIndex(hashes=64, bands=16, seed=0)
    >>> index.add("a", range(0, 100))
    >>> index.add("b", range(500, 600))
    >>> index.query(range(0, 95))
    ['a']
    >>> index.jaccard("a", "b")
    0.0
    """

    def __init__(
        self, hashes: int = 128, bands: int = 32, seed: int = 0, scheme: str = "independent"
    ) -> None:
        if bands < 1 or hashes % bands:
            raise ValueError(f"bands: expected a divisor of hashes={hashes}, got {bands}")
        self.hashing = Hashing(hashes, seed, scheme)
        self.bands = bands
        self._signatures: dict[Hashable, Signature] = {}
        self._tables: list[dict[bytes, dict[Hashable, None]]] = [{} for _ in range(bands)]

    def __len__(self) -> int:
        return len(self._signatures)

    def add(self, key: Hashable, support: ArrayLike) -> None:
        """Index a client's support, in place of what was indexed under this key before."""
        self.add_signature(key, self.hashing.sign(support))

    def add_signature(self, key: Hashable, signature: ArrayLike) -> None:
        """Index a client that sent its signature only."""
        checked = self._checked(signature)
        self.remove(key)
        self._signatures[key] = checked
        for table, band in zip(self._tables, self._bands(checked), strict=True):
            table.setdefault(band, {})[key] = None

    def remove(self, key: Hashable) -> None:
        """Forget a client; nothing happens if it is not known."""
        signature = self._signatures.pop(key, None)
        if signature is None:
            return
        for table, band in zip(self._tables, self._bands(signature), strict=True):
            del table[band][key]
            if not table[band]:
                del table[band]

    def query(self, support: ArrayLike) -> list[Hashable]:
        """Return the keys of the candidates for a support, in the order in which they were added.

        A client that is indexed itself is among them.
        """
        return self.query_signature(self.hashing.sign(support))

    def query_signature(self, signature: ArrayLike) -> list[Hashable]:
        """Return the keys of the candidates for a signature."""
        bands = self._bands(self._checked(signature))
        found: set[Hashable] = set()
        for table, band in zip(self._tables, bands, strict=True):
            found.update(table.get(band, ()))
        return [key for key in self._signatures if key in found]

    def candidate_pairs(self) -> list[tuple[Hashable, Hashable]]:
        """Return the pairs of indexed clients that share a band: those worth scoring exactly."""
        keys = list(self._signatures)
        place = {key: i for i, key in enumerate(keys)}
        codes = [np.empty(0, dtype=np.int64)]
        for table in self._tables:
            for bucket in table.values():
                if len(bucket) == 1:
                    continue  # nobody to pair with, as in most of them
                members = np.sort([place[key] for key in bucket])
                first, second = np.triu_indices(members.size, k=1)
                codes.append(members[first] * len(keys) + members[second])
        pairs = np.divmod(np.unique(np.concatenate(codes)), max(1, len(keys)))
        return [(keys[i], keys[j]) for i, j in zip(*pairs, strict=True)]

    def jaccard(self, a: Any, b: Any) -> float:
        """Return the estimated Jaccard similarity of two supports, or of two indexed keys."""
        return float(np.mean(self._signature(a) == self._signature(b)))

    def _signature(self, item: Any) -> Signature:
        if isinstance(item, np.ndarray | list | range):
            return self.hashing.sign(item)
        if item not in self._signatures:
            raise KeyError(f"{item!r} is neither a support nor an indexed key")
        return self._signatures[item]

    def _bands(self, signature: Signature) -> Iterable[bytes]:
        return (band.tobytes() for band in signature.reshape(self.bands, -1))

    def _checked(self, signature: ArrayLike) -> Signature:
        array = np.asarray(signature)
        if array.dtype != np.uint32 or array.shape != (self.hashing.hashes,):
            raise ValueError(
                f"signature: expected {self.hashing.hashes} values of uint32, "
                f"got {array.dtype} of shape {array.shape}"
            )
        return array


def overlap_from_jaccard(jaccard: ArrayLike, sizes: Sequence[ArrayLike] = (1, 1)) -> Any:
    """Return the overlap of two supports whose Jaccard similarity is known.

    ``2 J / (1 + J)`` for supports of one size. For others, ``sizes`` are the two numbers of indices
    and the overlap is ``J (|I| + |J|) / ((1 + J) sqrt(|I| |J|))``.
    """
    values = np.asarray(jaccard, dtype=np.float64)
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"jaccard: expected numbers from 0 to 1, got {jaccard!r}")
    first, second = (np.asarray(size, dtype=np.float64) for size in sizes)
    result = values * (first + second) / ((1 + values) * np.sqrt(first * second))
    return float(result) if result.ndim == 0 else result


def agreements(signatures: NDArray[Any]) -> Floats:
    """Return the share of places at which all pairs of signatures agree."""
    clients, hashes = signatures.shape
    counts = np.zeros((clients, clients), dtype=np.int32)
    for place in signatures.T:
        counts += place[:, None] == place
    return np.asarray(counts / hashes)


Held = Mapping[int, ArrayLike]


def overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return the overlaps of all pairs of supports: exact where held, else by their signatures.

    - ``signatures`` (shape (n, h)): one row per client.
    - ``counts`` (shape (n,)): how many indices each of their supports has.
    - ``held``: the supports that are known, by row. All their pairs are scored at once, which is
      faster than one candidate pair after the other.

    >>> signatures, counts = [[1, 2, 3, 4], [1, 2, 7, 8]], [10, 10]
    >>> overlaps_by_signature(signatures, counts).round(3).tolist()
    [[1.0, 0.667], [0.667, 1.0]]
    >>> overlaps_by_signature(signatures, counts, {0: range(10), 1: range(3, 13)}).tolist()
    [[1.0, 0.7], [0.7, 1.0]]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    overlaps = overlap_from_jaccard(agreements(np.asarray(signatures)), (sizes[:, None], sizes))
    result = np.asarray(np.minimum(overlaps, 1.0))
    if held:
        rows = list(held)
        result[np.ix_(rows, rows)] = overlap_matrix(held.values())
    return result


def centred_overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return :func:`centred_overlap_matrix` of supports of which only signatures may be known.

    The numbers of common indices follow from the overlaps, and the centred overlaps from these.

    - ``signatures``, ``counts``, ``held``: as for :func:`overlaps_by_signature`.

    >>> signatures, counts = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 6, 7, 8]], [10, 10, 10]
    >>> centred_overlaps_by_signature(signatures, counts).round(3).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    overlaps = overlaps_by_signature(signatures, sizes, held)
    return centred_cosines(overlaps * np.sqrt(np.outer(sizes, sizes)))


def signed_overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return the signed overlaps of all pairs: exact where codes are held, else by signatures.

    Places that agree in all bits are added, those that differ in the lowest bit only subtracted.

    - ``signatures`` (shape (n, h)): from :meth:`Hashing.sign_changes`, one row per client.
    - ``counts`` (shape (n,)): how many changes each of them is of.
    - ``held``: the codes that are known, by row.

    >>> signatures = np.array([[3, 5, 7, 9], [3, 5, 7, 9], [2, 4, 6, 8]], dtype=np.uint32)
    >>> signed_overlaps_by_signature(signatures, [10, 10, 10]).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    rows, sizes = np.asarray(signatures), np.asarray(counts, dtype=np.float64)
    alike, common = agreements(rows), agreements(rows | 1)
    overlaps = overlap_from_jaccard(common, (sizes[:, None], sizes))
    signs = np.divide(2 * alike - common, common, out=np.zeros_like(common), where=common > 0)
    result = np.minimum(overlaps, 1.0) * signs
    if held:
        positions = list(held)
        result[np.ix_(positions, positions)] = signed_overlap_matrix(held.values())
    return np.asarray(result)
