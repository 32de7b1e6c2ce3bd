# mypy: ignore-errors
"""A round of fluke: ``python benchmarks/peers/fluke_rounds.py``."""

import torchvision_on_cpu  # noqa: F401  (first: fluke imports torchvision)
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from torch.nn import CrossEntropyLoss
from work import BATCH, CLIENTS, PER_ROUND, RATE, ROUNDS, Turns, clients, softmax


class Watch:
    """Tells the time when fluke begins and ends a round."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def start_round(self, **more) -> None:
        """Begin."""
        self._turns.begin()

    def end_round(self, **more) -> None:
        """End."""
        self._turns.end()


def main() -> None:
    """Train with everything switched off that is not training."""
    FlukeENV().set_seed(0)
    FlukeENV().set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)
    data = clients()
    crowd = [
        Client(
            index=number,
            train_set=FastDataLoader(x, y, num_labels=10, batch_size=BATCH, shuffle=True),
            test_set=None,
            optimizer_cfg=OptimizerConfigurator({"name": "SGD", "lr": RATE}),
            loss_fn=CrossEntropyLoss(),
            local_epochs=1,
        )
        for number, (x, y) in enumerate(data)
    ]
    server = Server(softmax(), None, crowd, weighted=True)
    algorithm = FedAVG(CLIENTS, None, {}, clients=crowd, server=server)
    turns = Turns("fluke", "fluke-fl", data)
    algorithm.attach(Watch(turns))
    algorithm.run(ROUNDS + 1, PER_ROUND / CLIENTS)
    turns.show()


if __name__ == "__main__":
    main()
