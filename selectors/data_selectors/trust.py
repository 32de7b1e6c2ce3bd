"""Trust in labels: an average over several checks, which memorising a label does not raise.

A network that is trained for long also learns wrong labels. The model then confirms them, and the
features of such a sample have moved towards its wrong class. One check of the present model cannot
distinguish it from a clean sample. Four measures help:

- **Two tests.** The server's class means show where each class lies (``confirmation``), by clean
  samples that no client trains on. The model compares the probability of the label with that of the
  likeliest other class, ``p / (p + rival)``. A label is trusted unless a test contradicts it much.
  The first test is reliable early in training, the second later. The second is weighted by how well
  the model knows the server's samples of the class, ``1 + G_0``, where ``G_0`` is the bias's entry
  of the class's mean gradient. A class that is learned late is thus not excluded before.
- **Memory.** An exponential mean over all checks counts, not the last one alone (self-ensembling,
  Nguyen et al., 2020: *SELF*).
- **Trust rises only without training.** A sample that was trained on since the last check may have
  been memorised. Its trust may fall but not rise.
- **Error rates.** The share of the server's clean samples that the tests doubt estimates the share
  of right labels doubted on a client. Doubted samples are still drawn sometimes (see ``doubt``).

Both tests are lenient, because most labels are right: with 40 % of ten classes' labels flipped at
random, a label with a calibrated ``p = 0.07`` is as likely right as wrong.
"""

from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .confirmation import confirmation

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

MEMORY = 0.3
SERVER = 0.4  # least confirmation by the server: 1.5 times as far, squared, as the next class
MODEL = 0.2  # least confirmation by the model: a rival that is four times as likely


def label_evidence(
    gradients: ArrayLike, labels: ArrayLike, targets: ArrayLike, rivals: ArrayLike
) -> Floats:
    """Return how far both tests confirm each label now, shape (2, n).

    From 0 to 1; 1/2 is undecided. A class without samples on the server is not tested: 1 and 1/2.
    NaN for rows that are not finite. Samples are judged one by one; it is fastest to judge those of
    many clients in one call.

    - ``gradients``, ``labels``, ``targets``: as in
      :func:`selectors.data_selectors.confirmation.confirmation`.
    - ``rivals`` (shape (n,)): the model's probability of the likeliest label besides the own one.

    Two classes around 0 and around 4. The second sample looks like the other class; the model has
    learned its label nevertheless.

    >>> gradients, rivals = [[-0.5, 0.0], [-0.1, -0.4]], [0.5, 0.1]
    >>> label_evidence(gradients, [0, 0], [[-0.5, 0.0], [-0.5, -2.0]], rivals).tolist()
    [[1.0, 0.0], [0.5, 0.7]]

    That the model finds the second label nine times as likely as another counts half: it knows the
    server's samples of the class by half, too.
    """
    rows, rival = np.asarray(gradients, dtype=np.float64), np.asarray(rivals, dtype=np.float64)
    server = confirmation(rows, labels, targets)
    if rival.shape != server.shape:
        raise ValueError(f"rivals: expected {len(server)}, one per row, got shape {rival.shape}")
    with np.errstate(invalid="ignore"):
        own = 1 - np.abs(rows[:, 0])
        total = own + rival
        ratio = np.divide(own, total, out=np.full_like(own, 0.5), where=total != 0)
    known = 1 + np.nan_to_num(np.asarray(targets, dtype=np.float64)[:, 0], nan=-1.0)
    competence = np.where(known < 1, np.maximum(known, 0), 0)[np.asarray(labels)]
    model = 0.5 + competence * (ratio - 0.5)
    return np.where(np.isnan(server) | np.isnan(model), np.nan, np.stack([server, model]))


def remembered(
    trust: ArrayLike | None, evidence: ArrayLike, trained: ArrayLike, memory: float = MEMORY
) -> Floats:
    """Return the trust in each label after one more check.

    - ``trust`` (shape (2, n)): what was returned last time. Without it, and where it is NaN (for
      samples that had no finite evidence, or that are new), the first check counts alone.
    - ``evidence`` (shape (2, n)): from :func:`label_evidence`.
    - ``trained`` (shape (n,)): which samples were trained on since the last check: their trust does
      not rise.
    - ``memory``: share of the past in the mean; 0 for the last check alone.

    >>> before, now = [[0.5, 0.5, 0.5]] * 2, [[0.9, 0.9, 0.1]] * 2
    >>> remembered(before, now, [False, True, True], memory=0.5)[0].tolist()
    [0.7, 0.5, 0.3]
    """
    seen = np.asarray(evidence, dtype=np.float64)
    if not 0 <= memory < 1:
        raise ValueError(f"memory: expected a share from 0 to below 1, got {memory!r}")
    if trust is None:
        return seen.copy()
    before = np.asarray(trust, dtype=np.float64)
    if before.shape != seen.shape:
        raise ValueError(f"trust: expected shape {seen.shape} as evidence has, got {before.shape}")
    fresh = memory * before + (1 - memory) * seen
    kept = np.where(np.asarray(trained, dtype=bool), np.minimum(fresh, before), fresh)
    return np.where(np.isnan(before), seen, kept)


def certainty(trust: ArrayLike) -> Floats:
    """Return the trust in each label by the test that doubts it more; 1 is just enough."""
    server, model = np.asarray(trust, dtype=np.float64)
    least: Floats = np.minimum(server / SERVER, model / MODEL)
    return least


def trusted(trust: ArrayLike, at_least: int = 0) -> Positions:
    """Return the samples whose label neither test contradicts much, in ascending order.

    If fewer than ``at_least`` are trusted, those that come closest to it make up for them. Samples
    without a finite trust are never returned.

    >>> trusted([[0.9, 0.4, 0.3, np.nan], [0.9, 0.1, 0.3, np.nan]]).tolist()
    [0]
    >>> trusted([[0.9, 0.4, 0.3, np.nan], [0.9, 0.1, 0.3, np.nan]], at_least=2).tolist()
    [0, 2]
    """
    doubts = -certainty(trust)
    doubts = np.where(np.isnan(doubts), np.inf, doubts)
    usable = np.count_nonzero(np.isfinite(doubts))
    count = max(np.count_nonzero(doubts <= -1), min(index(at_least), usable))
    return np.sort(np.argsort(doubts, kind="stable")[:count])
