"""Bytes and speed of the top-k sparse uplink: ``python -m forager.benchmarks.sparse_uplink``.

Bytes of the index part (headers included) stand against the entropy bound log2 C(n, k). Times are
the best of several calls, side by side in one run, as ratios to the selection alone
(``np.argpartition``) and to the plain way: int32 indices and values through zlib.
"""

import math
import zlib
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.wire import sparse

Floats = NDArray[np.float32]

REPEATS = 7
CASES = [
    ("random", 1_000_000, 0.001),
    ("random", 1_000_000, 0.01),
    ("random", 1_000_000, 0.1),
    ("layers", 1_000_000, 0.1),
    ("rows", 1_000_000, 0.1),
    ("random", 1_000_000, 0.5),
    ("random", 1_000_000, 1.0),
    ("random", 10_000_000, 0.1),
]
COLUMNS = {
    "support": "{}",
    "size": "{:,}",
    "density": "{:g}",
    "index_bytes": "{:,}",
    "index_over_bound": "{:.3f}",
    "bytes_over_dense": "{:.3f}",
    "bytes_over_zlib": "{:.2f}",
    "encode_MB_s": "{:.0f}",
    "decode_MB_s": "{:.0f}",
    "encode_over_argpartition": "{:.2f}",
    "encode_over_zlib": "{:.3f}",
    "decode_over_zlib": "{:.2f}",
}


def measure() -> list[dict[str, Any]]:
    """Return one row of sizes, speeds and ratios per case, keyed by :data:`COLUMNS`."""
    return [_measure_case(*case) for case in CASES]


def main() -> None:
    """Print the table, one row per case."""
    titles = " | ".join(COLUMNS).replace("_MB_s", " MB/s").replace("_", " ")
    print(f"| {titles} |\n|{' --- |' * len(COLUMNS)}")
    for row in measure():
        print(f"| {' | '.join(form.format(row[name]) for name, form in COLUMNS.items())} |")


def example_update(support: str, size: int) -> Floats:
    """Return a normal update whose scale is even, differs by layer, or is large in a few rows."""
    rng = np.random.default_rng(0)
    update = rng.standard_normal(size, dtype=np.float32)
    if support == "layers":
        update *= np.repeat(np.exp(rng.normal(size=size // 50_000 + 1)), 50_000)[:size]
    elif support == "rows":
        update += np.repeat(100 * (rng.random(size // 64 + 1) < 0.1), 64)[:size]
    return update.astype(np.float32, copy=False)


def entropy_bound_bytes(size: int, k: int) -> float:
    """Return log2 C(size, k) / 8."""
    ways = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    return ways / math.log(2) / 8


def _measure_case(support: str, size: int, density: float) -> dict[str, Any]:
    update, k = example_update(support, size), round(size * density)
    message, zlib_message = sparse.encode(update, k), _zlib_encode(update, k)
    index_bytes = len(message) - 4 * k
    bound = entropy_bound_bytes(size, k)
    encode, argpartition, zlib_encode, decode, zlib_decode = _best_seconds(
        lambda: sparse.encode(update, k),
        lambda: np.argpartition(np.abs(update), size - max(k, 1)),
        lambda: _zlib_encode(update, k),
        lambda: sparse.decode(message, size),
        lambda: _zlib_decode(zlib_message, size, k),
    )
    return {
        "support": support,
        "size": size,
        "density": density,
        "index_bytes": index_bytes,
        "index_over_bound": index_bytes / bound if bound > 1 else math.nan,
        "bytes_over_dense": len(message) / update.nbytes,
        "bytes_over_zlib": len(message) / len(zlib_message),
        "encode_MB_s": update.nbytes / 1e6 / encode,
        "decode_MB_s": update.nbytes / 1e6 / decode,
        "encode_over_argpartition": encode / argpartition,
        "encode_over_zlib": encode / zlib_encode,
        "decode_over_zlib": decode / zlib_decode,
    }


def _best_seconds(*calls: Callable[[], object]) -> list[float]:
    """Time the calls in turns, so that a busy moment of the machine meets them all."""
    best = [math.inf] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            start = perf_counter()
            call()
            best[i] = min(best[i], perf_counter() - start)
    return best


def _zlib_encode(update: Floats, k: int) -> bytes:
    indices = np.sort(np.argpartition(np.abs(update), update.size - k)[update.size - k :])
    return zlib.compress(indices.astype(np.int32).tobytes() + update[indices].tobytes())


def _zlib_decode(message: bytes, size: int, k: int) -> Floats:
    content = zlib.decompress(message)
    dense = np.zeros(size, dtype=np.float32)
    dense[np.frombuffer(content, np.int32, k)] = np.frombuffer(content, np.float32, k, 4 * k)
    return dense


if __name__ == "__main__":
    main()
