"""What a client's summary takes beside the forward and backward passes that it needs.

``python -m forager.benchmarks.summary_overhead`` lets clients answer ``query.summary``: four
mini-batches of training, then one number that compares the change with the last global update. The
limit are the passes alone, on the same mini-batches. Both take turns, so that other load on the
machine hits both; the ratio of the medians is what counts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from ..client_app.batch import ClientBatch
from ..client_app.handlers.summaries import summarise_clients
from ..core.config import Scalar, default_config, read_config
from ..core.learning.model_arrays import read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import summary_settings
from ..core.tasks import load_task
from ..core.wire.arrays import to_record
from ..core.wire.flower_private import by_wire as as_received
from ..core.wire.keys import ARRAYS, CONFIG, REFERENCE, ROUND, SIMILARITY, SUMMARY, WANTS
from ..core.wire.requests import Requests
from ..strategies.federation.questions import encode_update
from ..tools.engine.local_grid import LocalGrid
from .side_by_side import side_by_side

_CLIENTS = 100
_HEAD: dict[str, Scalar] = {
    "task": "forager.benchmarks.summary_overhead:backbone_features",
    "model": "softmax",
    "batch-size": 64,
}
_IMAGES: dict[str, Scalar] = {
    "task": "forager.benchmarks.workloads:fashion_like",
    "model": "small-cnn",
    "batch-size": 32,
    "local.trainer": "serial",
}


def backbone_features() -> dict[str, NDArray[Any]]:
    """Return random features of a backbone's shape, 200 for each of 100 clients."""
    rng = np.random.default_rng(0)
    x = rng.random((20_100, 1280), dtype=np.float32)
    y = np.arange(20_100) % 10
    return {"x_train": x[:-100], "y_train": y[:-100], "x_test": x[-100:], "y_test": y[-100:]}


def measure(
    overrides: dict[str, Scalar], clients: int, by_wire: bool, repeats: int
) -> dict[str, float]:
    """Return the seconds of the passes alone and of the whole answer.

    Parameters
    ----------
    overrides : dict
        The task and the model.
    clients : int
        How many answer in one call.
    by_wire : bool
        Whether the model comes as bytes, as on a device.
    repeats : int
        How often to measure.
    """
    run_config = {**default_config(), **overrides, "partition": "iid", "momentum": 0.9}
    config = read_config(run_config)
    grid = LocalGrid(_CLIENTS, run_config)
    contexts = list(grid.contexts.values())[:clients]
    task = load_task(config.task_spec())
    arrays = read_arrays(task.build_model())
    content = RecordDict({CONFIG: _question(arrays), ARRAYS: to_record(arrays)})
    messages = [_message(content, context.node_id, by_wire) for context in contexts]
    requests = Requests.of(messages)
    assert requests is not None
    batch = ClientBatch(requests, contexts)
    jobs, settings, trainer = batch.jobs(), summary_settings(config, 2), batch.side.trainer
    ways: dict[str, Callable[[], Any]] = {
        "passes": lambda: trainer.train(jobs, settings, Plain(config)),
        "whole answer": lambda: summarise_clients(ClientBatch(requests, contexts)),
    }
    return side_by_side(ways, repeats)


def _question(arrays: dict[str, NDArray[Any]]) -> ConfigRecord:
    """Ask for the similarity to an update that is half zero, as the mean of ten sparse ones."""
    rng = np.random.default_rng(0)
    update = {name: rng.normal(size=a.shape).astype(np.float32) for name, a in arrays.items()}
    for values in update.values():
        values[rng.random(values.shape) < 0.5] = 0
    return ConfigRecord({ROUND: 2, WANTS: SIMILARITY, REFERENCE: encode_update(update)})


def _message(content: RecordDict, node: int, by_wire: bool) -> Message:
    message = Message(content, dst_node_id=node, message_type=SUMMARY)
    message.metadata.__dict__["_message_id"] = str(node)
    return as_received(message) if by_wire else message


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("Answering query.summary; overhead over the forward and backward passes it needs")
    for title, overrides, clients, by_wire, repeats in (
        ("head of 12,810 weights, 100 clients", _HEAD, 100, False, 21),
        ("head of 12,810 weights, a device", _HEAD, 1, True, 101),
        ("small CNN, a device", _IMAGES, 1, True, 51),
    ):
        seconds = measure(overrides, clients, by_wire, repeats)
        passes, whole = seconds["passes"], seconds["whole answer"]
        print(
            f"  {title:36} passes {1000 * passes:8.2f} ms, whole {1000 * whole:8.2f} ms, "
            f"overhead {100 * (whole / passes - 1):5.1f} %"
        )


if __name__ == "__main__":
    main()
