"""A device answers questions with nothing but its own file: the server's data are not there."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.core.config import default_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks.models import build_model
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CONFIG, LOSS, METRICS, ROUND, SUMMARY, WANTS

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def test_the_loss_is_the_first_thing_a_device_is_asked_for(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(30) % 3)
    # A spec that nobody has loaded in this process: what is not cached has to be found out.
    run = {"task": "npz", "data.num-classes": 3, "data.path": str(tmp_path / "elsewhere.npz")}
    node = {"client-id": "camera", "data-path": str(tmp_path / "own.npz")}
    context = Context(1, 7, node, RecordDict(), default_config() | run)
    model = build_model("softmax", (4,), 3, seed=0)
    arrays = {name: np.zeros_like(array) for name, array in read_arrays(model).items()}
    content = {ARRAYS: to_record(arrays), CONFIG: ConfigRecord({ROUND: 1, WANTS: LOSS})}
    message = Message(RecordDict(content), dst_node_id=7, message_type=SUMMARY)
    reply = answer_one(message, context)
    assert reply.has_content(), reply.error
    assert reply.content.metric_records[METRICS][LOSS] == pytest.approx(np.log(3), rel=1e-5)
