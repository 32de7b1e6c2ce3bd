"""CLoVE: clients whose losses on all models are similar share a model.

Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty, 2025: *CLoVE: Personalized Federated Learning
through Clustering of Loss Vector Embeddings*. IFCA sends each client to its best model; if one
model happens to start better, all clients choose it. Clients of one kind have similar losses on all
k models: CLoVE clusters these vectors of losses, and gives each cluster its own model. The authors'
code stops asking once all participants have kept their model for three rounds, and can search for
the number of models; here participants are asked in every round, and the number is given.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from .ifca import Ifca

_SEED = 0


def clustered_models(losses: ArrayLike) -> NDArray[np.intp]:
    """Return the model of each client: k-means of losses, clusters matched to models.

    The matching has the lowest sum of losses of all in which no two clusters share a model.

    - ``losses`` (one row per client and one column per model)

    The first model is the best for all; those who are worse off with the second keep it.

    >>> clustered_models([[0.1, 0.9], [0.1, 0.8], [0.5, 0.6], [0.4, 0.6]]).tolist()
    [0, 0, 1, 1]
    """
    values = np.asarray(losses, dtype=np.float64)
    clusters = min(values.shape[1], len(np.unique(values.round(9), axis=0)))
    labels = np.zeros(len(values), dtype=np.intp)
    if clusters > 1:
        labels = KMeans(clusters, n_init=10, random_state=_SEED).fit(values).labels_
    sums = np.array([values[labels == label].sum(axis=0) for label in range(clusters)])
    _, models = linear_sum_assignment(sums.reshape(clusters, values.shape[1]))
    return np.asarray(models, dtype=np.intp)[labels] if clusters else labels


class Clove(Ifca):
    """Which model each client trained last; clusters again whenever clients report losses.

    >>> clove = Clove(models=2)
    >>> clove.observe(list("abc"), [[0.1, 0.9], [0.5, 0.6], [0.1, 0.8]])
    ['0.0', '0.1', '0.0']
    """

    def observe(self, keys: Sequence[str], losses: ArrayLike) -> list[str]:
        """Return the model of each participant; one without all losses stays where it is."""
        values, leaves = np.asarray(losses, dtype=np.float64), self.leaves()
        if values.shape != (len(keys), self.models):
            raise ValueError(f"losses: expected {len(keys)} rows and {self.models} columns")
        known = np.flatnonzero(np.isfinite(values).all(axis=1))
        for place, model in zip(known.tolist(), clustered_models(values[known]), strict=True):
            self.members.put(keys[place], leaves[model])
        return [self.members.leaf_of(key) or leaves[0] for key in keys]
