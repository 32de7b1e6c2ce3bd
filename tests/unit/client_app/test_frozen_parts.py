"""A client refuses a model whose frozen part is not the server's, as its results would be void."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from forager.client_app.app import app
from forager.core.config import default_config, read_config
from forager.core.learning.model_arrays import frozen_digest, read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.flower_private import TaskIdentity
from forager.core.wire.keys import ARRAYS, CONFIG, FROZEN, ROUND
from forager.server_app.retries import RunFailed
from forager.tools.engine import run_local

RUN: dict[str, Any] = {**default_config(), "task": "digits", "data.client-test-share": 0.2}
SAID = "the parameters that are not trained differ between server and client"


def reply_to(kind: str, strategy: str, frozen: str) -> Message:
    """What a device answers to a server that builds on these frozen parameters."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    run = {**RUN, "strategy": strategy}
    model = load_task(read_config(run).task_spec()).build_model()
    said = ConfigRecord({ROUND: 1, FROZEN: frozen or frozen_digest(model)})
    content = RecordDict({ARRAYS: to_record(read_arrays(model)), CONFIG: said})
    node = {"partition-id": 0, "num-partitions": 10}
    message = Message(content, dst_node_id=7, message_type=kind)
    return app(message, Context(1, 7, node, RecordDict(), run))


@pytest.mark.parametrize("strategy", ["fedavg", "cosage", "scaffold"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_device_works_on_what_the_server_builds_on_only(kind: str, strategy: str) -> None:
    refused = reply_to(kind, strategy, frozen="something else")
    assert refused.has_error()
    assert SAID in refused.error.reason
    assert reply_to(kind, strategy, frozen="").has_content()


@pytest.mark.parametrize("strategy", ["fedavg", "cosage"])
def test_so_does_every_client_of_the_local_engine(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forager.server_app.app.frozen_digest", lambda _: "something else")
    keys = {"strategy": strategy, "num-server-rounds": 1, "output-dir": str(tmp_path)}
    with pytest.raises(RunFailed, match=SAID):
        run_local({**keys, "round.give-up-after": 0.01})
