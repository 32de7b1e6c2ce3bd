"""Every client gets the mixture of its neighbours' models."""

import numpy as np
from fakes import FakeGrid, answer, honest_records, one_round, small_model
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.strategies.layers.neighbours import Neighbours
from forager.strategies.similarities.client_similarity import Cosine

# Who moves which entry of the bias, and how far
MOVES = {"0": (0, 1.0), "1": (0, 3.0), "2": (1, 2.0), "3": (1, 4.0)}


def moved(message: Message, key: str, look: int = 0) -> list[Message]:
    """Change one entry of the model that came."""
    place, step = MOVES[key]
    arrays = from_record(message.content.array_records[ARRAYS])
    bias = arrays["layer.bias"].copy()
    bias[place] += np.float32(step)
    changed = to_record({**arrays, "layer.bias": bias})
    return [answer(message, honest_records(message, key) | {ARRAYS: changed})]


def test_who_moves_the_same_way_starts_from_the_mean_of_both() -> None:
    inner = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    layer, grid = Neighbours(inner, Cosine(), count=1), FakeGrid(list(MOVES))
    grid.behaviours = dict.fromkeys(MOVES, moved)
    start = small_model()
    model, _ = one_round(layer, to_record(start), grid)
    assert model is not None
    for message in layer.configure_train(2, model, ConfigRecord(), grid):
        expected = start["layer.bias"].copy()
        place, _ = MOVES[grid.nodes[message.metadata.dst_node_id]]
        expected[place] += (2.0, 3.0)[place]
        sent = from_record(message.content.array_records[ARRAYS])
        np.testing.assert_allclose(sent["layer.bias"], expected, rtol=1e-5)
