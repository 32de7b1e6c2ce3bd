"""A client's coreset, one message at a time."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.batch import ClientBatch
from forager.client_app.clients import VirtualContext
from forager.client_app.hooks.coresets import ChosenCoreset
from forager.client_app.hooks.skyline import CleanOnly
from forager.client_app.side import ClientSide
from forager.core.config import read_config
from forager.core.learning.features import features_of
from forager.core.learning.gradients import sample_rows, server_targets
from forager.core.learning.model_arrays import read_arrays
from forager.core.methods.coreset import CoresetSettings
from forager.core.tasks import Split, load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import CONFIG, CORESET, ROUND, TARGETS
from forager.core.wire.requests import Requests

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

# As docker/supernode.py makes it: a partition-id is no simulation.
DEVICE = Context(1, 7, {"partition-id": 0, "num-partitions": 6}, RecordDict(), {})
DATA = {"partition": "iid", "noise": "closed-set", "coreset.every": 3}
TASK = load_task(read_config(DATA).task_spec())
SIZE = len(TASK.client_data(0, 6).train)


def targets(config: Any, arrays: Any, without: int = -1) -> ArrayRecord:
    data, model = TASK.server_data().validation, TASK.build_model()
    data = Split(data.x[data.y != without], data.y[data.y != without])
    return to_record(
        {"means": server_targets(model, arrays, data, config[CoresetSettings].per_class)}
    )


class Client:
    """A client that answers messages one after the other and keeps its state."""

    def __init__(self, selector: str = "gcfl", **settings: Any) -> None:
        keys = {name.replace("__", ".").replace("_", "-"): v for name, v in settings.items()}
        self.config = read_config({**DATA, "data-selector": selector, **keys})
        self.data = TASK.client_data(0, 6).train
        self.clean = TASK.client_data(0, 6).clean
        self.state: dict[str, Any] = {}
        self.arrays = read_arrays(TASK.build_model())
        self.context: Context = VirtualContext(7, 0, 6, {}, set())
        self.unknown_to_server = -1
        self.trainer = ClientSide(self.config).trainer
        self.problem = TASK.problem

    def request(self, number: int, *, guided: bool = False, kind: str = "train") -> Any:
        told = targets(self.config, self.arrays, self.unknown_to_server)
        content: dict[str, Any] = {CONFIG: ConfigRecord({ROUND: number})}
        content |= {TARGETS: told} if guided else {}
        message = Message(RecordDict(content), dst_node_id=7, message_type=kind)
        batch = ClientBatch(Requests(message, [7]), [self.context], self)
        batch.models, batch.data, batch.keys = [self.arrays], [self.data], ["0"]
        batch.holdings = [SimpleNamespace(clean=self.clean)]
        batch.rows[0].state = self.state
        self.part().before(batch)
        reply = {name: column[0] for name, column in batch.records.items()}
        return SimpleNamespace(chosen=batch.data[0], weights=batch.weights[0], reply=reply)

    def part(self) -> Any:
        skyline = self.config.data_selector == "skyline"
        return CleanOnly(self.config) if skyline else ChosenCoreset(self.config)


def told(request: Any, name: str) -> Any:
    return request.reply[CORESET][name]


def same(a: Any, b: Any) -> bool:
    return torch.equal(a.chosen.x, b.chosen.x) and torch.equal(a.chosen.y, b.chosen.y)


def test_before_the_first_choice_a_random_subset_stands_in():
    client = Client()
    first, second = client.request(1), client.request(2)
    assert told(first, "round") == told(second, "round") == 0
    assert len(first.chosen) == round(0.1 * SIZE) == told(first, "size")
    assert same(first, second)
    assert not client.state


def test_targets_bring_a_choice_which_is_kept():
    client = Client()
    random = client.request(1)
    chosen, kept = client.request(2, guided=True), client.request(9)
    assert (told(chosen, "round"), told(kept, "round")) == (2, 2)
    assert same(chosen, kept)
    assert not same(chosen, random)
    assert told(chosen, "clean") > told(random, "clean")
    again = client.request(11, guided=True)
    assert told(again, "round") == 11


def test_trusted_keeps_a_pool_from_which_every_round_draws():
    client = Client("trusted")
    first = client.request(2, guided=True)
    pool = client.state["coreset"]["indices"]
    assert len(pool) > round(0.1 * SIZE) == told(first, "size")
    later, again = client.request(3), client.request(3)
    assert told(later, "round") == 2
    assert not same(first, later)
    assert same(later, again)
    assert np.array_equal(client.state["coreset"]["indices"], pool)
    allowed = {tuple(row) for row in client.data.x[pool].flatten(1).tolist()}
    assert {tuple(row) for row in later.chosen.x.flatten(1).tolist()} <= allowed
    assert float(client.clean[pool].float().mean()) > float(client.clean.float().mean()) + 0.2


@pytest.mark.parametrize(("budget", "size"), [(0.1, round(0.1 * SIZE)), (25, 25), (1e-9, 1)])
def test_a_budget_below_what_is_trusted_is_spent(budget, size):
    client = Client("trusted", coreset__budget=budget)
    assert told(client.request(2, guided=True), "size") == size


def test_a_larger_budget_is_spent_on_what_is_trusted_only():
    client = Client("trusted", coreset__budget=1.0)
    first, second = client.request(2, guided=True), client.request(3)
    pool = client.state["coreset"]["indices"]
    assert SIZE / 3 < len(pool) < SIZE
    assert torch.equal(first.chosen.y, client.data.y[pool])
    assert same(first, second)
    assert told(first, "clean") > float(client.clean.float().mean()) + 0.2


def test_matching_goes_by_what_it_calls_missing():
    plain = Client("gcfl", coreset__residual="plain-mean").request(2, guided=True)
    paper = Client("gcfl").request(2, guided=True)
    assert not same(plain, paper)
    assert not same(plain, Client("trusted").request(2, guided=True))


def test_trust_is_remembered_and_what_was_trained_on_does_not_win_any():
    client = Client("trusted")
    client.request(2, guided=True)
    before = client.state["coreset"]
    drawn = before["trained"]
    assert drawn.sum() == round(0.1 * SIZE)
    client.request(3)
    drawn = client.state["coreset"]["trained"]
    assert drawn.sum() > round(0.1 * SIZE)
    client.request(4, kind="query.summary")  # only a taste
    assert np.array_equal(client.state["coreset"]["trained"], drawn)

    # The model has learnt all labels by heart, as far as one can tell by its bias and weights
    client.arrays = {name: 30 * array for name, array in client.arrays.items()}
    client.request(5, guided=True)
    after, last = client.state["coreset"], Client("trusted")
    last.arrays = client.arrays
    last.request(5, guided=True)
    seen = last.state["coreset"]["trust"]
    expected = 0.3 * before["trust"] + 0.7 * seen
    np.testing.assert_allclose(after["trust"][:, ~drawn], expected[:, ~drawn], atol=1e-6)
    falls = np.minimum(expected, before["trust"])
    np.testing.assert_allclose(after["trust"][:, drawn], falls[:, drawn], atol=1e-6)
    assert (after["trust"][:, drawn] < expected[:, drawn] - 1e-6).any()


def test_without_samples_on_the_server_labels_are_judged_by_the_clients_own_means():
    client = Client("trusted", coreset__target="own")
    assert told(client.request(1), "round") == 0
    own = client.request(2)
    assert (told(own, "round"), told(own, "size")) == (2, round(0.1 * SIZE))
    assert told(own, "clean") > float(client.clean.float().mean())


def test_classes_give_equal_parts_if_asked_for():
    client = Client(coreset__budget=50, coreset__class_budgets="equal")
    client.data = Split(client.data.x, (torch.arange(SIZE) < 20).long())
    request = client.request(2, guided=True)
    assert torch.bincount(request.chosen.y).tolist() == [30, 20]


def test_gcfl_gives_classes_equal_parts_from_the_first_round_on():
    """Section 5.2 and Algorithm 1 (t = 0): b/|Y| each, what is missing from the others."""
    client = Client(coreset__budget=50)
    client.data = Split(client.data.x, (torch.arange(SIZE) < 20).long())
    request = client.request(1, guided=True)
    assert told(request, "round") == 1
    assert torch.bincount(request.chosen.y).tolist() == [50 - 20, 20]
    release = Client(coreset__budget=50, coreset__class_budgets="proportional")
    release.data = client.data
    share = torch.bincount(release.request(1, guided=True).chosen.y)[1].item() / 50
    assert share == pytest.approx(20 / SIZE, abs=1 / 50)


def test_trusted_weighs_nothing_in_training():
    assert Client("trusted", coreset__use_weights=True).request(2, guided=True).weights is None


@pytest.mark.parametrize(
    ("selector", "rounds"),
    [
        ("random", [1, 1, 1, 4, 4]),
        ("facility-location", [1, 1, 1, 1, 1]),
        ("crust", [0, 2, 2, 2, 5]),
        ("gradmatch", [0, 2, 2, 2, 5]),
    ],
)
def test_rules_without_targets_choose_by_themselves(selector, rounds):
    client = Client(selector)
    assert [told(client.request(number), "round") for number in range(1, 6)] == rounds


def test_a_taste_of_training_chooses_nothing():
    client = Client("crust", coreset__first_round=0)
    taste = client.request(1, kind="query.summary")
    assert told(taste, "round") == 0
    assert told(client.request(1), "round") == 1


@pytest.mark.parametrize("selector", ["gcfl", "trusted", "crust"])
def test_data_that_changed_are_chosen_from_anew(selector):
    client = Client(selector, coreset__every=100)
    client.request(2, guided=True)
    client.data = Split(client.data.x[:100], client.data.y[:100])
    client.clean = client.clean[:100]
    changed = client.request(3)
    alone = selector == "crust"  # chooses without the server
    assert told(changed, "round") == (3 if alone else 0)
    assert told(changed, "size") == 10
    assert told(client.request(4, guided=True), "round") == (3 if alone else 4)
    client.data = Split(client.data.x, client.data.y.flip(0))
    assert told(client.request(5), "round") == (5 if alone else 0)


@pytest.mark.parametrize(
    ("budget", "size"), [(0.1, round(0.1 * SIZE)), (1.0, SIZE), (25, 25), (1e6, SIZE), (1e-9, 1)]
)
@pytest.mark.parametrize("selector", ["gcfl", "facility-location"])
def test_the_budget_is_a_share_or_a_number(selector, budget, size):
    client = Client(selector, coreset__budget=budget)
    assert told(client.request(2, guided=True), "size") == size
    if budget == 1:
        assert torch.equal(client.request(3).chosen.y, client.data.y)


@pytest.mark.parametrize(
    "selector", ["gcfl", "gradmatch", "nearest", "trusted", "crust", "facility-location"]
)
def test_samples_that_are_not_finite_are_never_trained_on(selector):
    client = Client(selector)
    client.data.x[: SIZE // 2].fill_(np.nan)
    try:
        for number in (1, 2):
            request = client.request(number, guided=True)
            assert torch.isfinite(request.chosen.x).all()
            assert told(request, "size") == round(0.1 * SIZE)
    finally:
        TASK._clients._kept.clear()  # the data belong to all tests


@pytest.mark.parametrize("selector", ["gcfl", "trusted"])
def test_nothing_usable_leaves_a_random_subset(selector):
    client = Client(selector)
    client.data = Split(torch.full_like(client.data.x, np.nan), client.data.y)
    request = client.request(2, guided=True)
    assert (told(request, "round"), told(request, "size")) == (0, round(0.1 * SIZE))


@pytest.mark.parametrize("selector", ["gcfl", "gradmatch", "nearest", "trusted", "crust"])
def test_gradients_that_are_all_zero(selector):
    client = Client(selector)
    client.data = Split(client.data.x, torch.zeros_like(client.data.y))
    client.arrays = {n: np.zeros_like(a) for n, a in client.arrays.items()}
    client.arrays["1.bias"][0] = 1e4  # certain, and right: no gradient at all
    rows = sample_rows(TASK.build_model(), client.arrays, client.data, "trusted", True)
    assert not rows.any()
    assert told(client.request(2, guided=True), "size") == round(0.1 * SIZE)


def test_a_class_of_one_and_classes_that_are_absent():
    client = Client("gcfl", coreset__budget=20)
    labels = torch.ones_like(client.data.y)
    labels[7] = 3
    client.data = Split(client.data.x, labels)
    request = client.request(2, guided=True)
    assert told(request, "size") == 20
    assert (request.chosen.y == 1).all()


@pytest.mark.parametrize("selector", ["gcfl", "nearest", "trusted"])
def test_a_class_that_the_server_does_not_have_still_gives_samples(selector):
    client = Client(selector)
    client.unknown_to_server = 3
    request = client.request(2, guided=True)
    assert (told(request, "round"), told(request, "size")) == (2, round(0.1 * SIZE))
    assert (request.chosen.y == 3).any()


@pytest.mark.parametrize("selector", ["gcfl", "trusted", "crust"])
def test_labels_out_of_range_are_an_error_that_says_so(selector):
    client = Client(selector)
    client.data = Split(client.data.x, client.data.y + 5)
    with pytest.raises(ValueError, match="labels: expected 0 to 9, got 1"):
        client.request(2, guided=True)


@pytest.mark.parametrize("selector", ["gcfl", "gradmatch", "facility-location"])
def test_weights_are_used_only_if_asked_for(selector):
    assert Client(selector).request(2, guided=True).weights is None
    client = Client(selector, coreset__use_weights=True)
    request = client.request(2, guided=True)
    assert request.weights.dtype == np.float32
    assert len(request.weights) == len(request.chosen)
    assert (request.weights > 0).all()
    assert len(set(request.weights.tolist())) > 1


@pytest.mark.parametrize("selector", ["gcfl", "gradmatch", "nearest"])
def test_one_choice_among_all_classes_by_the_whole_head(selector):
    guided = {"coreset__target": "server"}
    whole = Client(selector, **guided, coreset__per_class=False)
    by_class = Client(selector, **guided)
    request = whole.request(2, guided=True)
    assert told(request, "size") == round(0.1 * SIZE)
    assert not same(request, by_class.request(2, guided=True))


def test_a_target_of_its_own_needs_no_server():
    own = Client("trusted", coreset__target="own")
    assert [told(own.request(number), "round") for number in (1, 2, 5)] == [0, 2, 5]
    assert not same(own.request(5), Client("trusted").request(5, guided=True))


def test_the_targets_of_all_classes_are_the_mean_gradient_of_the_head():
    model, data = TASK.build_model(), TASK.server_data().validation
    arrays = read_arrays(model)
    whole = server_targets(model, arrays, data, per_class=False)
    torch.nn.functional.cross_entropy(model(data.x), data.y).backward()
    np.testing.assert_allclose(whole[:, 0], model[1].bias.grad, atol=1e-6)
    np.testing.assert_allclose(whole[:, 1:], model[1].weight.grad, atol=1e-6)


def test_the_clean_share_is_told_only_where_the_truth_is_known():
    device = Client()
    device.context = DEVICE
    assert not {"clean", "labels"} & set(device.request(2, guided=True).reply[CORESET])
    assert "clean" not in Client(noise="none").request(2, guided=True).reply[CORESET]


def test_the_skyline_is_what_noise_left_alone():
    client = Client("skyline")
    request = client.request(1)
    assert torch.equal(request.chosen.x, client.data.x[client.clean])
    assert (told(request, "clean"), told(request, "size")) == (1.0, int(client.clean.sum()))
    client.context = DEVICE
    with pytest.raises(ValueError, match="a device does not know"):
        client.request(1)


def test_features_are_those_of_the_arrays_and_without_dropout():
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.Dropout(0.9), torch.nn.Linear(5, 10)
    )
    arrays = read_arrays(model)
    for parameter in model.parameters():
        parameter.data.zero_()
    data = TASK.client_data(0, 6).train
    found = features_of(model, arrays, data).numpy()
    expected = data.x.flatten(1).numpy() @ arrays["1.weight"].T + arrays["1.bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
