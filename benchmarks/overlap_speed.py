"""Speed and size of what IOS is made of, as ratios to other ways of doing the same.

``python -m forager.benchmarks.overlap_speed`` measures, for supports of 70,000 of 1,000,000
indices,

- the overlaps of all pairs of 200 and of 1,000 clients: against scipy's sparse product and
  bit-packing in numpy;
- MinHash signatures: against datasketch where that is installed (it is not among the requirements),
  both as it comes, hashing each index by SHA-1, and given numbers that need no such hash;
- how many of each client's nearest are retrieved by banding, and which share of pairs is scored;
- the importance of a batch, in processor time: against a plain forward and backward pass over it;
- importance over local training, and by a pass of its own afterwards: against training alone;
- the bytes of an encoded support: against its entropy bound.

All sides of a comparison take turns in one run, so that other load on the machine hits all of them;
the ratio of the medians is what counts.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch.nn import functional

from ..core.config import read_config
from ..core.learning.fisher import fisher_diagonal, fisher_diagonals
from ..core.learning.job import Job, Outcomes
from ..core.learning.model_arrays import read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import TrainSettings
from ..core.learning.trainer import Trainer
from ..core.tasks import Split
from ..core.tasks.models import build_model
from ..core.wire.supports import decode_support, encode_support
from ..selectors.similarities.index_overlap import overlap_matrix, top_k_support
from ..selectors.similarities.minhash import MinHashIndex
from ..selectors.similarities.signatures import SCHEMES, Hashing
from .side_by_side import side_by_side

Support = NDArray[np.int64]

PARAMETERS, K = 1_000_000, 70_000


def random_supports(clients: int, parameters: int, k: int) -> list[Support]:
    """Return supports that have nothing to do with each other.

    >>> [support.size for support in random_supports(2, 10, 3)]
    [3, 3]
    """
    rng = np.random.default_rng(0)
    importance = (rng.random(parameters, dtype=np.float32) for _ in range(clients))
    return [top_k_support(values, k) for values in importance]


def related_supports(clusters: int, members: int, parameters: int, k: int) -> list[Support]:
    """Return supports of clients in groups: of importance in common, of the group, and their own.

    >>> len(related_supports(3, 2, 100, 10))
    6
    """
    rng = np.random.default_rng(0)
    common, supports = rng.standard_normal(parameters, dtype=np.float32), []
    for _ in range(clusters):
        group = common + rng.standard_normal(parameters, dtype=np.float32)
        for _ in range(members):
            own = rng.standard_normal(parameters, dtype=np.float32)
            supports.append(top_k_support(np.exp(group + own / 2), k))
    return supports


def pair_seconds(supports: list[Support], parameters: int, repeats: int) -> dict[str, float]:
    """Return what each way of comparing all pairs takes.

    >>> list(pair_seconds(random_supports(4, 100, 10), 100, repeats=1))
    ['overlap_matrix', 'scipy sparse product', 'numpy bit-packing']
    """
    sizes = np.array([support.size for support in supports])
    pointers = np.concatenate([[0], np.cumsum(sizes)])

    def sparse_product() -> Any:
        ones = np.ones(pointers[-1], dtype=np.int32)
        rows = csr_array((ones, np.concatenate(supports), pointers), shape=(len(sizes), parameters))
        return (rows @ rows.T).toarray()

    def bit_packing() -> Any:
        members = np.zeros((len(sizes), -(-parameters // 64) * 64), dtype=np.bool_)
        for row, support in zip(members, supports, strict=True):
            row[support] = True
        bits = np.packbits(members, axis=1).view(np.uint64)
        return [np.bitwise_count(row & bits[i:]).sum(axis=1) for i, row in enumerate(bits)]

    ways = {
        "overlap_matrix": lambda: overlap_matrix(supports),
        "scipy sparse product": sparse_product,
        "numpy bit-packing": bit_packing,
    }
    return side_by_side(ways, repeats)


def signature_seconds(support: Support, hashes: int, repeats: int) -> dict[str, float]:
    """Return what each way of signing a support takes; others only if they are installed.

    >>> list(signature_seconds(np.arange(9), hashes=4, repeats=1))[:2]
    ['independent', 'one-permutation']
    """
    ways: dict[str, Callable[[], Any]] = {
        scheme: partial(Hashing(hashes, scheme=scheme).sign, support) for scheme in SCHEMES
    }
    if find_spec("datasketch"):
        sketch = import_module("datasketch").MinHash
        ways["datasketch, numbers as they are"] = lambda: sketch(hashes, hashfunc=int).update_batch(
            support.tolist()
        )
        ways["datasketch, SHA-1"] = lambda: sketch(hashes).update_batch(
            [index.tobytes() for index in support]
        )
    return side_by_side(ways, repeats)


def retrieval(
    supports: list[Support], nearest: int, hashes: int, bands: int
) -> tuple[float, float]:
    """Return the share of each client's nearest that banding retrieves, and of pairs it scores.

    >>> retrieval(related_supports(3, 2, 1000, 100), nearest=1, hashes=16, bands=16)[0]
    1.0
    """
    index = MinHashIndex(hashes, bands)
    for client, support in enumerate(supports):
        index.add(client, support)
    candidates = np.zeros((len(supports), len(supports)), dtype=np.bool_)
    pairs = np.array(index.candidate_pairs(), dtype=np.int64).reshape(-1, 2)
    candidates[pairs[:, 0], pairs[:, 1]] = True
    scored = candidates.sum() / (len(supports) * (len(supports) - 1) / 2)
    overlaps = overlap_matrix(supports) - 2 * np.eye(len(supports))
    wanted = np.argsort(-overlaps, axis=1, kind="stable")[:, :nearest]
    found = np.take_along_axis(candidates | candidates.T, wanted, axis=1)
    return float(found.mean()), float(scored)


def importance_seconds(
    model: str, shape: tuple[int, ...], batch: int, repeats: int
) -> dict[str, float]:
    """Return what the importance of a batch takes, and a plain pass over it, of the processor.

    Both take milliseconds, of which other load on the machine would hit one more than the other.

    >>> list(importance_seconds("mlp", (1, 4, 4), batch=2, repeats=1))
    ['forward and backward', 'fisher_diagonal']
    """
    net = build_model(model, shape, 10, hidden=200).eval()
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(batch, *shape, generator=draw)
    labels = torch.randint(10, (batch,), generator=draw)

    def plain() -> None:
        net.zero_grad()
        torch.autograd.backward(functional.cross_entropy(net(inputs), labels))

    def importance() -> Any:
        return fisher_diagonal(net, functional.cross_entropy, inputs, labels)

    ways = {"forward and backward": plain, "fisher_diagonal": importance}
    return side_by_side(ways, repeats, clock=time.process_time)


def training_seconds(
    model: str, shape: tuple[int, ...], clients: int, samples: int, epochs: int, repeats: int
) -> dict[str, float]:
    """Return what training takes, and what it takes with the importance of all parameters.

    >>> list(training_seconds("mlp", (1, 4, 4), 2, samples=4, epochs=1, repeats=1))
    ['training', 'and importance over it', 'and a pass afterwards']
    """
    net, draw = build_model(model, shape, 10, hidden=64), torch.Generator().manual_seed(0)
    arrays, plain = read_arrays(net), Plain(read_config({}))
    data = [
        Split(
            torch.randn(samples, *shape, generator=draw),
            torch.randint(10, (samples,), generator=draw),
        )
        for _ in range(clients)
    ]
    jobs = [Job(arrays, own, seed) for seed, own in enumerate(data)]
    settings = TrainSettings(epochs, 0, 32, 0.01, 0.9, 0.0)
    trainer = Trainer(net, threads=1)

    def train(squares: int) -> Outcomes:
        return Outcomes.of(trainer.train(jobs, replace(settings, squares=squares), plain))

    def afterwards() -> Any:
        trained = [own.arrays for own in train(0)]
        return fisher_diagonals(net, functional.cross_entropy, trained, data)

    ways: dict[str, Callable[[], Any]] = {
        "training": partial(train, 0),
        "and importance over it": partial(train, 1),
        "and a pass afterwards": afterwards,
    }
    return side_by_side(ways, repeats, clock=time.process_time)


def entropy_bytes(parameters: int, k: int) -> float:
    """Return the bytes that tell one of all sets of ``k`` indices, all being as likely.

    >>> entropy_bytes(256, 1)
    1.0
    """
    ways = math.lgamma(parameters + 1) - math.lgamma(k + 1) - math.lgamma(parameters - k + 1)
    return round(ways / math.log(2) / 8, 6)


def _print_ratios(seconds: dict[str, float], base: str) -> None:
    for name, value in seconds.items():
        print(f"  {name:32} {1000 * value:10.2f} ms {value / seconds[base]:8.2f}")


def _print_pairs() -> None:
    supports = random_supports(1000, PARAMETERS, K)
    for clients, repeats in ((200, 3), (1000, 1)):
        print(f"All pairs of {clients:,} clients, {K:,} of {PARAMETERS:,} indices; ratios to ours")
        _print_ratios(pair_seconds(supports[:clients], PARAMETERS, repeats), "overlap_matrix")


def _print_signatures() -> None:
    print("128 hashes of a support; ratios to ours")
    support = random_supports(1, PARAMETERS, K)[0]
    _print_ratios(signature_seconds(support, 128, repeats=7), "independent")
    if not find_spec("datasketch"):
        print("  datasketch is not installed: not compared")


def _print_retrieval() -> None:
    supports = related_supports(20, 50, 50_000, 3500)
    overlaps = overlap_matrix(supports)
    same = np.kron(np.eye(20, dtype=bool), np.ones((50, 50), dtype=bool))
    print("Each client's 10 nearest of 1,000 in 20 groups; mean overlap in a group and outside:")
    print(f"  {overlaps[same].mean():.2f} and {overlaps[~same].mean():.2f}")
    for hashes, bands in ((64, 32), (128, 32), (128, 64), (192, 64), (256, 64)):
        found, scored = retrieval(supports, 10, hashes, bands)
        print(f"  {hashes} hashes in {bands} bands: recall {found:.3f}, pairs scored {scored:.3f}")


def _print_importance() -> None:
    print("Importance of a batch of 64, one thread; ratios to a forward and backward pass")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    images = [(model, (1, 28, 28), 25) for model in ("mlp", "lenet", "small-cnn", "cnn")]
    others = [("mlp", (10_000,), 15), ("resnet18", (3, 32, 32), 3)]
    for model, shape, repeats in images + others:
        print(f" {model} on {' x '.join(map(str, shape))}")
        _print_ratios(importance_seconds(model, shape, 64, repeats), "forward and backward")
    for model, shape, clients in (
        ("mlp", (1, 8, 8), 100),
        ("mlp", (1, 28, 28), 10),
        ("small-cnn", (1, 28, 28), 10),
    ):
        for epochs in (1, 5):
            size = " x ".join(map(str, shape))
            print(f" {clients} clients, 64 samples each, {epochs} epochs: {model} on {size}")
            _print_ratios(training_seconds(model, shape, clients, 64, epochs, 9), "training")
    torch.set_num_threads(threads)


def _print_bytes() -> None:
    print("Bytes of a support of 1,000,000 parameters; ratios to the entropy bound")
    for k in (100, 1_000, 10_000, 70_000, 122_000, 250_000, 500_000):
        support = random_supports(1, PARAMETERS, k)[0]
        data = encode_support(support, PARAMETERS, tag=0)
        ways: dict[str, Callable[[], Any]] = {
            "encode": partial(encode_support, support, PARAMETERS, 0),
            "decode": partial(decode_support, data, PARAMETERS, 0),
        }
        seconds = side_by_side(ways, repeats=3)
        print(
            f"  {k:7,} {len(data):8,} bytes "
            f"{len(data) / entropy_bytes(PARAMETERS, k):6.3f}   encode "
            f"{1000 * seconds['encode']:6.1f} ms  decode {1000 * seconds['decode']:6.1f} ms"
        )


def main() -> None:
    """Print the tables."""
    _print_pairs()
    _print_signatures()
    _print_retrieval()
    _print_importance()
    _print_bytes()


if __name__ == "__main__":
    main()
