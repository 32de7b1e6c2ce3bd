"""The mod by itself: what it answers about an app's model and data, and what it adds to replies."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.core.learning.fisher import trainable_shapes
from forager.core.tasks.own_app import as_split
from forager.core.wire.keys import (
    ANSWERS,
    ASK_AFFINITY,
    ASK_LOSSES,
    ASK_SUPPORT,
    ASK_UPDATE,
    CLIENT,
    CLIENT_KEY,
    IDENTIFY,
    LOSS,
    LOSSES,
    PAYLOAD,
    SETTINGS,
    SUMMARY,
    SUPPORT,
    WANTS,
)
from forager.core.wire.supports import decode_support, model_tag
from forager.strategies.federation.grids import question
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import forager

X = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
Y = torch.arange(30) % 3


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture(autouse=True)
def _identity() -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@pytest.fixture
def context() -> Context:
    return Context(1, 7, {"partition-id": 2}, RecordDict(), {})


def arrays() -> ArrayRecord:
    return ArrayRecord(make_model().state_dict())


def asked(kind: str, config: dict[str, Any] | None = None, **models: ArrayRecord) -> Message:
    content = {"config": ConfigRecord({"server-round": 3, **(config or {})}), **models}
    message = question(RecordDict(content), 7, kind, "train")
    message.metadata.__dict__["_message_id"] = "1"
    return message


def train_message(**config: Any) -> Message:
    content = {"config": ConfigRecord({"server-round": 3, **config}), "arrays": arrays()}
    message = Message(RecordDict(content), dst_node_id=7, message_type="train")
    message.metadata.__dict__["_message_id"] = "1"
    return message


def train(message: Message, context: Context) -> Message:
    """Somebody's train function, that adds one to everything."""
    after = {n: a.numpy() + 1 for n, a in message.content["arrays"].items()}
    metrics = MetricRecord({"num-examples": 30})
    from forager.core.wire.arrays import to_record

    content = RecordDict({"arrays": to_record(after), "metrics": metrics})
    return Message(content, reply_to=message)


def never(message: Message, context: Context) -> Message:
    raise AssertionError("a question must not reach the train function")


FULL = forager.client_mod(model=make_model, data=lambda context: (X, Y))


def test_it_says_who_it_is_and_what_it_can_answer(context: Context) -> None:
    said = FULL(asked(IDENTIFY), context, never).content[CLIENT]
    assert said[CLIENT_KEY] == "2"
    assert {"similarity", "loss", "coreset"} <= set(said[ANSWERS])
    bare = forager.client_mod()(asked(IDENTIFY), context, never).content[CLIENT]
    assert bare[ANSWERS] == [ASK_UPDATE, ASK_AFFINITY]


def test_losses_are_those_of_the_models(context: Context) -> None:
    model = make_model()
    expected = nn.functional.cross_entropy(model(X), Y).item()
    answer = FULL(asked(SUMMARY, {WANTS: LOSS}, arrays=arrays()), context, never)
    assert answer.content["metrics"][LOSS] == pytest.approx(expected, rel=1e-5)
    answer = FULL(asked(ASK_LOSSES, **{"0": arrays(), "1": arrays()}), context, never)
    assert answer.content["metrics"][LOSSES] == pytest.approx([expected] * 2, rel=1e-5)


def test_your_own_loss_may_be_per_sample(context: Context) -> None:
    def absolute(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return outputs.abs().sum(1)

    mod = forager.client_mod(model=make_model, data=lambda context: (X, Y), loss=absolute)
    answer = mod(asked(SUMMARY, {WANTS: LOSS}, arrays=arrays()), context, never)
    expected = make_model()(X).abs().sum(1).mean().item()
    assert answer.content["metrics"][LOSS] == pytest.approx(expected, rel=1e-5)


def test_a_support_is_of_the_model(context: Context) -> None:
    told = json.dumps({"strategy": "ios", "ios.share": 0.1})
    answer = FULL(asked(ASK_SUPPORT, {SETTINGS: told}, arrays=arrays()), context, never)
    shapes = trainable_shapes(make_model())
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    found = decode_support(answer.content[SUPPORT][PAYLOAD], size, model_tag(shapes))
    assert len(found) == round(0.1 * size)


def test_an_update_is_that_of_the_own_train_function(context: Context) -> None:
    answer = FULL(asked(ASK_UPDATE, {"steps": 0}, arrays=arrays()), context, train)
    before = make_model().state_dict()["0.bias"].numpy()
    assert np.allclose(answer.content["arrays"]["0.bias"].numpy(), before + 1)


def test_the_reply_is_signed_and_timed_and_otherwise_the_apps(context: Context) -> None:
    reply = FULL(train_message(), context, train)
    assert set(reply.content) == {"arrays", "metrics", CLIENT}
    assert set(reply.content["metrics"]) == {"num-examples", "seconds"}


def test_without_hooks_a_question_about_data_names_them(context: Context) -> None:
    reply = forager.client_mod()(asked(SUMMARY, {WANTS: LOSS}, arrays=arrays()), context, never)
    assert "client_mod(model=..., data=...)" in reply.error.reason


def test_a_train_function_that_ignores_its_coreset_is_found_out(
    context: Context, said: list[str]
) -> None:
    told = {SETTINGS: json.dumps({"data-selector": "gcfl", "coreset.budget": 0.2})}
    reply = FULL(train_message(**told), context, train)
    assert dict(reply.content["coreset"])["size"] == 30
    assert any("forager.local_data(message, data)" in line for line in said)

    def uses(message: Message, context: Context) -> Message:
        x, y = forager.local_data(message, (X, Y))
        assert len(x) == len(y) == 6
        return train(message, context)

    reply = FULL(train_message(**told), context, uses)
    assert dict(reply.content["coreset"])["size"] == 6


def test_what_is_chosen_has_the_form_of_the_data(context: Context) -> None:
    told = {SETTINGS: json.dumps({"data-selector": "gcfl", "coreset.budget": 0.2})}
    loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
    seen: list[Any] = []

    def uses(message: Message, context: Context) -> Message:
        seen.append(forager.local_data(message, loader))
        seen.append(forager.local_data(message, TensorDataset(X, Y), weights=True))
        return train(message, context)

    FULL(train_message(**told), context, uses)
    chosen, weighted = seen
    assert (len(chosen.dataset), chosen.batch_size) == (6, 8)
    assert [len(item) for item in weighted] == [3] * 6
    assert forager.local_data(train_message(), loader) is loader  # outside of a run


def test_data_come_in_many_forms() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
    for data in ((X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), loader):
        split = as_split(data)
        assert torch.equal(split.x, X)
        assert torch.equal(split.y, Y)
    with pytest.raises(ValueError, match="expected pairs"):
        as_split([{"image": 1}, {"image": 2}, {"image": 3}])
    with pytest.raises(ValueError, match="30 inputs and 3 labels"):
        as_split((X, Y[:3]))
