"""What a process that Flower starts for one message does, but for the transport.

Used by :mod:`forager.benchmarks.message_cost`; it imports nothing that such a process would not.
"""

import json
import sys
from typing import Any

import flwr.supernode.cli  # noqa: F401  (as the program flwr-clientapp does)
import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from ..client_app.app import app
from ..core.config import default_config
from ..core.wire.arrays import to_record
from ..core.wire.flower_private import TaskIdentity  # Message(...) refuses to work without one
from ..core.wire.keys import ARRAYS, CONFIG, IDENTIFY, LOSS, ROUND, WANTS


def answer_one(run_config: dict[str, Any], kind: str, node_config: dict[str, Any]) -> Message:
    """Return the ClientApp's reply to a message of a kind about a softmax model of digits."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    shapes = {"1.weight": (10, 64), "1.bias": (10,)}
    model = to_record({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    asked = ConfigRecord({ROUND: 1, WANTS: LOSS})
    content = RecordDict() if kind == IDENTIFY else RecordDict({ARRAYS: model, CONFIG: asked})
    message = Message(content, dst_node_id=7, message_type=kind)
    context = Context(1, 7, node_config, RecordDict(), {**default_config(), **run_config})
    return app(message, context)


if __name__ == "__main__":
    reply = answer_one(json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
    if reply.has_error():
        sys.exit(f"{sys.argv[2]}: {reply.error.reason}")
