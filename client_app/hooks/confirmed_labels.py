"""How often the global model agrees with a client's labels, and weights of samples by it."""

import numpy as np

from ...core.learning.evaluation import predictions_of_all
from ...core.tasks import Split
from ...core.wire.keys import AGREEMENT, BLEND, DOUBT
from ...selectors.data_selectors.confirmed_labels import (
    agreement,
    blend,
    label_weights,
    running_predictions,
)
from ..batch import ClientBatch
from .base import ClientHook

_KEPT = "predictions"  # section of the client's state


class ConfirmedSamples(ClientHook):
    """Keep a running mean of the global model's predictions; weight samples by it on request."""

    def before(self, batch: ClientBatch) -> None:
        """Look at all samples with the model that came."""
        if not batch.trains or DOUBT not in batch.told or not batch.side.problem.has_classes:
            return
        sharpness = float(batch.told[DOUBT])  # 0 as long as no labels are found to be wrong
        model, data = batch.side.trainer.model, batch.data
        shares = []
        for row, seen in zip(
            batch.rows, predictions_of_all(model, batch.models, data), strict=True
        ):
            labels, mark = row.data.y.numpy(), row.data.fingerprint
            kept = row.state.get(_KEPT)
            before = kept["mean"] if kept is not None and kept["data"] == mark else None
            mean = running_predictions(before, seen)
            row.state[_KEPT] = {"mean": mean.astype(np.float32), "data": mark}
            shares.append(agreement(seen, labels))
            if sharpness:
                weights = label_weights(mean, labels, sharpness)
                batch.weights[row.place] = weights.astype(np.float32)
                own = row.data
                if batch.told.get(BLEND) and isinstance(own, Split) and own.x.is_floating_point():
                    rng = np.random.default_rng(batch.seeds[row.place])
                    others, from_which = blend(weights, rng)
                    data[row.place] = Split((own.x + own.x[others]) / 2, own.y[from_which])
        batch.metrics[AGREEMENT] = shares
