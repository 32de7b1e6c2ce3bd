"""Your own rule: clients with a high loss more often, but nobody twice in a row."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from forager.selectors.client_selectors.base import draw
from forager.tools.engine.local_grid import AppGrid
from torch import nn

import forager
from forager import Candidates, ClientSelector, client_mod


class RestedByLoss(ClientSelector):
    """Draw clients in proportion to their loss, among those that did not train last time."""

    needs = frozenset({"loss"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator):
        """Return the positions of those that train."""
        rested = candidates.observed("age") > 0
        return draw(np.where(rested, candidates.observed("loss"), 0.0), count, rng)


def net() -> nn.Module:
    """Return the model."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def own_data(context):
    """Return a client's samples: the later its number, the noisier."""
    number = context.node_config["partition-id"]
    rng = np.random.default_rng(number)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    return x, (x[:, 0] + 0.2 * number * rng.normal(size=60) > 0).astype(int)


app = ClientApp(mods=[client_mod(model=net, data=own_data)])


@app.train()
def train(message, context):
    """Train for one pass: nothing here knows of the rule."""
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.as_tensor, own_data(context))
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for start in range(0, 60, 20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[start : start + 20]), y[start : start + 20])
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": 60})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


def main() -> None:
    """Run four rounds in this process."""
    torch.manual_seed(0)
    fedavg = FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
    strategy = forager.strategy("fedavg", fedavg, model=net, selector=RestedByLoss())
    told = []
    strategy.federation.journal = told.append
    strategy.start(
        grid=AppGrid(app, 6), initial_arrays=ArrayRecord(net().state_dict()), num_rounds=4
    )
    for event in told:
        if event.name == "selected":
            print(f"round {event.round}: clients {', '.join(event.chosen)}")


if __name__ == "__main__":
    main()
