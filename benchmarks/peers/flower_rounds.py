# mypy: ignore-errors
"""A round of Flower's simulation on Ray: ``python benchmarks/peers/flower_rounds.py``."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from work import CLIENTS, PER_ROUND, ROUNDS, SAMPLES, Turns, clients, softmax, train

client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train one client."""
    torch.set_num_threads(1)
    model = softmax()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, *clients()[int(context.node_config["partition-id"])])
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": SAMPLES}),
    }
    return Message(RecordDict(content), reply_to=message)


class Watched(FedAvg):
    """Flower's FedAvg, with a look at the time when a round begins and ends."""

    turns: Turns

    def configure_train(self, *arguments):
        """Begin."""
        self.turns.begin()
        return super().configure_train(*arguments)

    def aggregate_train(self, *arguments):
        """End."""
        aggregated = super().aggregate_train(*arguments)
        self.turns.end()
        return aggregated


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with everything switched off that is not training."""
    strategy = Watched(fraction_train=PER_ROUND / CLIENTS, fraction_evaluate=0.0)
    strategy.turns = Turns("Flower with Ray", "flwr", clients())
    strategy.start(grid, ArrayRecord(softmax().state_dict()), num_rounds=ROUNDS + 1)
    strategy.turns.show()


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
