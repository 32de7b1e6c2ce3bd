"""Trust in labels that builds up over several looks, and is not gained by memorising them.

A network that is trained for long learns wrong labels too. Then the model confirms them, and so do
features that have moved to where the label is. One look at the present model cannot distinguish
such a sample from a clean one. Four things are meant to:

- **Two judges.** The server's class means say where each class lies (``confirmation``), by clean
  samples that no client trains on. The model says how likely it finds the label beside its best
  rival, ``p / (p + rival)``. A label is trusted if neither contradicts it much. The first judge can
  be relied on early in training, the second later, class by class: its word counts by how well it
  knows the server's samples of the class, ``1 + G_0``, where ``G_0`` is the bias's entry of the
  class's mean gradient, so that a class that is learned late is not ruled out before.
- **Memory.** What counts is an exponential mean over past looks, as in self-ensembling (Nguyen et
  al., 2020: *SELF*), not the last look alone.
- **Trust falls freely but is won only as an outsider.** A sample that was trained on since the last
  look may have been learned against the server's word. Its trust may fall but not rise.
- **The judges are judged.** How many of the server's clean samples they would rule out says how
  many of a client's they rule out wrongly; those are still drawn now and then (see ``doubt``).

Both judges are lenient, because most labels are right: with 40 % of ten
classes' labels flipped at random, right and wrong are as likely at ``p = 0.07`` if p is calibrated.
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
    """Return how far the server's means and the model confirm each label now, shape (2, n).

    From 0 to 1; 1/2 where they are undecided. Of a class that the server has no sample of nothing
    is said: 1 and 1/2. NaN for rows that are not finite. Samples are judged one by one: those of
    many clients, one after the other, are best judged in one call.

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
    """Return the trust in each label after one more look.

    - ``trust`` (shape (2, n)): what was returned last time. Without it, and where it is NaN (for
      samples that had no finite evidence, or that are new), the first look counts alone.
    - ``evidence`` (shape (2, n)): from :func:`label_evidence`.
    - ``trained`` (shape (n,)): which samples were trained on since the last look: their trust does
      not rise.
    - ``memory``: share of the past in the mean; 0 for the last look alone.

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
    """Return the trust in each label by the judge who doubts it more; 1 is just enough."""
    server, model = np.asarray(trust, dtype=np.float64)
    least: Floats = np.minimum(server / SERVER, model / MODEL)
    return least


def trusted(trust: ArrayLike, at_least: int = 0) -> Positions:
    """Return the samples whose label neither judge contradicts much, in ascending order.

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
