# mypy: ignore-errors
"""A round of Flower's simulation on Ray: ``python benchmarks/peers/flower_rounds.py``."""

from functools import cache

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from work import CLIENTS, PER_ROUND, ROUNDS, Turns, clients, softmax, train

client, server = ClientApp(), ServerApp()


@cache
def loaded():
    """Return data and a model, once per process."""
    return clients(), softmax()


@client.train()
def train_client(message, context):
    """Train as the bare loop does."""
    data, model = loaded()
    x, y = data[context.node_config["partition-id"]]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, x, y)
    metrics = MetricRecord({"num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@server.main()
def play(grid, context) -> None:
    """Play rounds of federated averaging."""
    turns = Turns("Flower with Ray", clients())
    share = PER_ROUND / CLIENTS
    strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    arrays = ArrayRecord(softmax().state_dict())
    for number in range(1, ROUNDS + 2):
        turns.begin()
        messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        turns.end()
    turns.show()


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
