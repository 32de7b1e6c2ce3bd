# mypy: ignore-errors
"""A round of pfl-research: ``python benchmarks/peers/pfl_rounds.py``."""

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional
from work import BATCH, CLIENTS, PER_ROUND, RATE, ROUNDS, Turns, clients, softmax


class Softmax(torch.nn.Module):
    """The model, as pfl-research wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = softmax()

    def forward(self, x):
        """Return scores."""
        return self.linear(x)

    def loss(self, x, y, eval=False):
        """Return the mean cross-entropy."""
        return functional.cross_entropy(self(x), y)

    def metrics(self, x, y, eval=False):
        """Return nothing: evaluation is off."""
        return {}


class Watch(TrainingProcessCallback):
    """Tells the time when a round ends, which is when the next one begins."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def on_train_begin(self, *, model) -> Metrics:
        """Begin the first."""
        self._turns.begin()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """End one, begin another."""
        self._turns.end()
        self._turns.begin()
        return False, Metrics()


def main() -> None:
    """Train with everything switched off that is not training."""
    data = clients()
    held = FederatedDataset(
        lambda user: Dataset(list(data[user]), user_id=str(user)),
        get_user_sampler("random", list(range(CLIENTS))),
    )
    backend = SimulatedBackend(held, held, postprocessors=[WeightByDatapoints()])
    net = Softmax()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    turns = Turns("pfl-research", "pfl", data)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS + 1,
            evaluation_frequency=10**6,
            train_cohort_size=PER_ROUND,
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=1000),
        callbacks=[Watch(turns)],
    )
    turns.show()


if __name__ == "__main__":
    main()
