"""What a process that Flower starts for one message does, but for the transport.

Used by :mod:`forager.benchmarks.message_cost`; it imports nothing that such a process would not.
"""

import contextlib
import io
import json
import runpy
import sys
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from ..client_app.app import app
from ..core.wire.arrays import to_record
from ..core.wire.flower_private import TaskIdentity  # Message(...) refuses to work without one
from ..core.wire.keys import ARRAYS, CONFIG, IDENTIFY, LOSS, ROUND, WANTS


def start_as(program: str) -> None:
    """Import what a program imports, up to where it reads its options."""
    sys.argv = [program, "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(program, run_name="__main__")


def answer_one(run_config: dict[str, Any], kind: str, node_config: dict[str, Any]) -> Message:
    """Return the ClientApp's reply to a message of a kind about a softmax model of digits.

    The run config is whole, as Flower hands it over.
    """
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    shapes = {"1.weight": (10, 64), "1.bias": (10,)}
    model = to_record({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    asked = ConfigRecord({ROUND: 1, WANTS: LOSS})
    content = RecordDict() if kind == IDENTIFY else RecordDict({ARRAYS: model, CONFIG: asked})
    message = Message(content, dst_node_id=7, message_type=kind)
    return app(message, Context(1, 7, node_config, RecordDict(), run_config))


if __name__ == "__main__":
    program, run, kind, node = sys.argv[1:]
    start_as(program)
    reply = answer_one(json.loads(run), kind, json.loads(node))
    if reply.has_error():
        sys.exit(f"{kind}: {reply.error.reason}")
