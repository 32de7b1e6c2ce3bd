"""An enrolled node against a run, over gRPC with TLS and node keys.

It knows its own messages, the app, the run config with its seed, and (which no log says) the node
ids of the others. It answers in their names, sends what is no message, announces what never comes,
and registers what the server is about to send as something else. The run must go on as if it were
away, and nobody else may be blamed.
"""

import time
from contextlib import suppress

import grpc
import numpy as np
import pytest
from deployed import Deployment, settings
from flwr.app import ConfigRecord, Error, Message, Metadata, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from forager.core.config import read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, CONFIG
from hostile_node import HostileNode
from story import Story

pytestmark = pytest.mark.timeout(900)

GOOD, EVIL = ["good-1", "good-2"], "evil"
ROUNDS = 3
RUN = settings(
    client_selector="all",
    num_server_rounds=ROUNDS,
    local_steps=2,
    round__min_replies=2,
    round__deadline=120.0,
    round__question_deadline=120.0,
    report=False,
    run_name="attacked",
)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def like(message, *, content=None, error=None, **changes):
    """A message with the metadata of another, but for some."""
    names = ("run_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id")
    names = (*names, "created_at", "ttl", "message_type")
    told = {name: getattr(message.metadata, name) for name in names}
    metadata = Metadata(**{**told, "message_id": "", **changes})
    return make_message(metadata, content, error)


def spoilt(tree, each):
    """A tree in which an object has a child that is not its own."""
    other = ObjectTree(object_id=ConfigRecord({"not": "yours"}).object_id)
    tree.children.append(ObjectTree(object_id=each.object_id, children=[other]))
    return tree


def foreseen(message):
    """What the server would send next, as far as it can be known: settings, the first model."""
    task = load_task(read_config({}).task_spec())
    model = to_record(read_arrays(task.build_model()))
    objects = [RecordDict(), *get_all_nested_objects(model).values()]
    if CONFIG in message.content:
        told = dict(message.content[CONFIG])
        later = range(int(told["server-round"]), ROUNDS + 1)
        objects += [ConfigRecord({**told, "server-round": number}) for number in later]
    return [each for each in objects if not getattr(each, "children", None)]


def attack(evil, message, victim):
    """All that can be done on the occasion of one message; return which replies were taken."""
    taken = {}
    # Replies to the victim's message, whose id would be known if copies differed in nothing else
    copy = like(message, content=message.content, dst_node_id=victim)
    forged = {"src_node_id": victim, "reply_to_message_id": copy.object_id}
    reply = Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
    reply.metadata.__dict__["_run_id"] = message.metadata.run_id
    taken["error"] = evil.push(like(reply, error=Error(0, "broken"), **forged))
    taken["content"] = evil.push(like(reply, content=reply.content, **forged))
    # Messages to the server itself, whose content never comes; each spoils something foreseen
    for number, each in enumerate(foreseen(message)):
        unasked = {"src_node_id": 1, "dst_node_id": 1, "reply_to_message_id": ""}
        unasked |= {"group_id": f"{number}", "created_at": time.time()}
        never = RecordDict({"never": ConfigRecord({"number": number})})
        announced = like(message, content=never, **unasked)
        with suppress(grpc.RpcError):  # it was sent before, and is what it is
            evil.push_objects(announced, spoilt(get_object_tree(announced), each), {})
    # Its own reply, once: no message at all to the first question, then one in the victim's name
    root = ConfigRecord({"no": "message"})
    if CONFIG in message.content:
        root = like(reply, content=reply.content, src_node_id=victim)
    taken["own"] = evil.push(reply, root)
    return taken


def test_a_run_goes_on_as_if_the_hostile_node_were_away(tmp_path):
    deployment = Deployment(tmp_path, [*GOOD, EVIL])
    try:
        deployment.start_devices(GOOD, of=3)
        evil = HostileNode(deployment.fleet, tmp_path / EVIL / "credentials")
        victim = int(deployment.nodes()["good-1"][1])
        follower = deployment.submit("run", "--run-config", RUN)
        messages, taken = [], []
        while follower.alive:
            if (message := evil.next_message(1.0)) is not None:
                messages.append(message)
                taken.append(attack(evil, message, victim))
        # Its own replies were taken by the SuperLink, and it had foreseen the model.
        assert taken == [{"error": False, "content": False, "own": True}] * (1 + ROUNDS)
        task = load_task(read_config({}).task_spec())
        for name, array in read_arrays(task.build_model()).items():
            np.testing.assert_array_equal(from_record(messages[1].content[ARRAYS])[name], array)

        story = Story(deployment, "attacked")
        assert follower.process.wait() == 0, story.explain()
        assert [event["reason"] for event in story.events("run-finished")] == ["completed"]
        trained = story.exchanges("train")
        assert [event["received"] for event in trained] == [2] * ROUNDS
        for event in story.events("exchange"):
            assert not {*event["failed"], *event["late"]} & set(GOOD), event
        assert not {event["client"] for event in story.events("quarantined")} & set(GOOD)
        reason = "a reply that cannot be read: ValueError: it names another node as its sender"
        assert [event["failed"] for event in trained] == [{EVIL: reason}] * ROUNDS
        evil.close()
    finally:
        deployment.stop()
