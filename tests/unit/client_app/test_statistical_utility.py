"""What a client tells Oort: one number, of the model that it received."""

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.core.config import default_config, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES, ROUND, UTILITY

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def reply_of(**settings: Any) -> Message:
    run = default_config() | {name.replace("_", "-"): value for name, value in settings.items()}
    model = load_task(read_config(run).task_spec()).build_model()
    content = {ARRAYS: to_record(read_arrays(model)), CONFIG: ConfigRecord({ROUND: 1})}
    message = Message(RecordDict(content), dst_node_id=7, message_type="train")
    context = Context(1, 7, {"partition-id": 2, "num-partitions": 10}, RecordDict(), run)
    reply = answer_one(message, context)
    assert reply.has_content(), reply.error
    return reply


def test_it_is_the_number_of_samples_times_the_root_of_the_mean_squared_loss() -> None:
    config = read_config({**default_config(), "client-selector": "oort"})
    task = load_task(config.task_spec())
    data = task.client_data(2, 10).train
    with torch.no_grad():
        logits = task.build_model()(data.x)
    losses = torch.nn.functional.cross_entropy(logits, data.y, reduction="none").numpy()
    metrics = reply_of(client_selector="oort").content.metric_records[METRICS]
    assert metrics[NUM_EXAMPLES] == len(losses)
    expected = len(losses) * np.sqrt((losses.astype(float) ** 2).mean())
    assert metrics[UTILITY] == pytest.approx(expected, rel=1e-5)


def test_nobody_else_is_told() -> None:
    assert UTILITY not in reply_of().content.metric_records[METRICS]
