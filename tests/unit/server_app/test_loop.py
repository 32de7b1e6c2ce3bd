import os
import signal
import threading
import time
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, Notes, answer, assert_same, failing, honest, never, small_model
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, Strategy
from forager.core.config import read_config
from forager.core.log.events import (
    Aggregated,
    Evaluated,
    Exchanged,
    RoundFinished,
    RunFinished,
    Selected,
)
from forager.core.storage import tree
from forager.core.tasks.metrics import ACCURACY, Metric
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import CONFIG, METRICS, RUN, SUMMARY
from forager.server_app import retries
from forager.server_app.callbacks.base import Callback
from forager.server_app.loop import Loop
from forager.server_app.post import Post
from forager.server_app.retries import LoopPlan, RunFailed
from forager.strategies.build import build_strategy
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Admission

KEYS = [str(i) for i in range(8)]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_PAUSE", 0.01)


class Diary(Callback):
    """Notes when it was called, and ends the run after a round if asked to."""

    def __init__(self, stop_after: int = 0) -> None:
        self.calls: list[str] = []
        self.stop_after = stop_after

    def on_run_start(self, loop: Loop) -> None:
        self.calls.append(f"start at {loop.round}")

    def on_round_end(self, loop: Loop) -> str | None:
        self.calls.append(f"round {loop.round}")
        return "enough" if loop.round == self.stop_after else None

    def on_run_end(self, loop: Loop) -> None:
        self.calls.append(f"end: {loop.reason}")

    def state_dict(self) -> dict[str, Any]:
        return {"calls": len(self.calls)}


def make(
    grid: FakeGrid,
    keys: dict[str, Any] | None = None,
    strategy: Strategy | None = None,
    metrics: tuple[Metric, ...] = (ACCURACY,),
    **other: Any,
) -> tuple[Loop, Notes]:
    """A loop over fake clients; ``keys`` are run-config keys, ``other`` the loop's own settings."""
    config = read_config({"num-clients": len(KEYS), "clients-per-round": 6, **(keys or {})})
    federation, notes = Federation(metrics=metrics), Notes()
    federation.journal = notes
    strategy = strategy or build_strategy(config, federation)
    planned = {field.name for field in fields(LoopPlan)}
    plan = {"num_rounds": 4, **{name: other.pop(name) for name in planned & other.keys()}}
    settings: dict[str, Any] = {
        "evaluate": lambda arrays: {"accuracy": 0.5, "loss": 1.0},
        "callbacks": [],
        **other,
    }
    post = Post(
        grid,
        federation,
        deadline=config.round.deadline,
        poll=0.002,
    )
    return Loop(strategy, post, to_record(small_model()), LoopPlan(**plan), **settings), notes


def test_runs_all_rounds_and_writes_them_down() -> None:
    loop, notes = make(FakeGrid(KEYS))
    assert loop.run() == "completed"
    assert loop.round == 4
    assert [event.round for event in notes.of(RoundFinished)] == [1, 2, 3, 4]
    assert [event.round for event in notes.of(Evaluated)] == [0, 1, 2, 3, 4]
    assert [len(event.chosen) for event in notes.of(Selected)] == [6] * 4
    (end,) = notes.of(RunFinished)
    assert (end.reason, end.rounds) == ("completed", 4)


def test_drives_a_strategy_of_flowers_own() -> None:
    stock = FedAvg(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    loop, _ = make(FakeGrid(KEYS), strategy=stock)
    assert loop.run() == "completed"
    assert not np.array_equal(from_record(loop.arrays)["layer.bias"], small_model()["layer.bias"])


def test_no_rounds_are_a_run_too() -> None:
    loop, notes = make(FakeGrid(KEYS), num_rounds=0)
    assert loop.run() == "completed"
    assert_same(loop.arrays, to_record(small_model()))
    assert [type(event) for event in notes.events] == [Evaluated, RunFinished]


def test_evaluates_every_few_rounds_and_after_the_last() -> None:
    loop, notes = make(FakeGrid(KEYS), num_rounds=7, evaluate_every=3)
    loop.run()
    assert [event.round for event in notes.of(Evaluated)] == [0, 3, 6, 7]


def test_callbacks_are_called_in_order_and_may_end_the_run() -> None:
    first, second = Diary(), Diary(stop_after=2)
    loop, _ = make(FakeGrid(KEYS), callbacks=[first, second])
    assert loop.run() == "enough"
    assert first.calls == ["start at 0", "round 1", "round 2", "end: enough"]
    assert second.calls == first.calls, "both hear of the round that ends the run"


def test_clients_evaluate_if_asked_to() -> None:
    keys = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
    loop, notes = make(FakeGrid(KEYS), keys, num_rounds=1)
    loop.run()
    (spread,) = [event for event in notes.of(Evaluated) if event.where == "clients"]
    assert spread.clients == 8
    accuracy = (spread.spread or {})["accuracy"]
    assert accuracy.mean == pytest.approx(0.35)
    assert (accuracy.worst_10, accuracy.best_10) == (0.0, 0.7)


def test_any_metrics_are_written_down_and_the_first_is_the_score() -> None:
    metrics = (Metric("mae", higher_is_better=False), Metric("r2"))
    scores = {"mae": 3.5, "r2": float("nan"), "loss": 20.0, "of-no-interest": 1.0}
    loop, notes = make(FakeGrid(KEYS), num_rounds=1, metrics=metrics, evaluate=lambda _: scores)
    loop.run()
    *_, last = notes.of(Evaluated)
    assert (last.metrics, last.loss) == ({"mae": 3.5, "r2": None}, 20.0)
    assert loop.score == 3.5
    assert loop.state()["scores"]["mae"] == 3.5


def test_a_checkpoint_that_knows_accuracy_only_still_loads() -> None:
    loop, _ = make(FakeGrid(KEYS), num_rounds=1)
    loop.run()
    old = {name: value for name, value in loop.state().items() if name != "scores"}
    resumed, _ = make(FakeGrid(KEYS))
    resumed.load_state({**old, "accuracy": 0.25, "loss": 2.0})
    assert (resumed.score, resumed.scores["loss"]) == (0.25, 2.0)
    resumed.load_state({**old, "accuracy": None, "loss": 0.0})
    assert resumed.score is None


def test_evaluation_that_fails_everywhere_does_not_end_the_run() -> None:
    def cannot_evaluate(message: Message, key: str, look: int) -> list[Message]:
        kind = message.metadata.message_type
        return failing(message, key) if kind == "evaluate" else honest(message, key)

    keys = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
    loop, _ = make(FakeGrid(KEYS, dict.fromkeys(KEYS, cannot_evaluate)), keys)
    assert loop.run() == "completed"


def test_a_failed_client_does_not_stop_a_round() -> None:
    loop, notes = make(FakeGrid(KEYS, {"2": failing}), {"client-selector": "all"}, num_rounds=2)
    assert loop.run() == "completed"
    assert all(list(e.failed) == ["2"] for e in notes.of(Exchanged) if e.kind == "train")


def failing_until(moment: float) -> Any:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        return honest(message, key) if time.monotonic() > moment else failing(message, key)

    return behave


def test_a_round_with_too_few_replies_is_tried_again() -> None:
    flaky = failing_until(time.monotonic() + 0.3)
    grid = FakeGrid(KEYS, dict.fromkeys("234567", flaky))
    keys = {"client-selector": "all", "round.min-replies": 5}
    loop, notes = make(grid, keys, min_replies=5, num_rounds=1)
    assert loop.run() == "completed"
    exchanges = [event for event in notes.of(Exchanged) if event.kind == "train"]
    assert len(exchanges) > 1
    assert all(event.received == 2 for event in exchanges[:-1])
    assert exchanges[-1].received >= 5
    assert len(notes.of(Aggregated)) == 1


def test_replies_that_are_set_aside_do_not_count_as_replies() -> None:
    """Whoever asks for five replies does not want a model of one."""

    def rubbish(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.content["arrays"] = to_record({"other": np.zeros(2)})
        return [reply]

    grid = FakeGrid(KEYS, dict.fromkeys("1234567", rubbish))
    keys = {"client-selector": "all", "round.min-replies": 5}
    loop, _ = make(grid, keys, min_replies=5, give_up_after=0.1)
    with pytest.raises(RunFailed):
        loop.run()


def test_gives_up_with_a_reason_and_still_ends_properly() -> None:
    diary = Diary()
    only_two = dict.fromkeys("234567", failing)
    loop, notes = make(
        FakeGrid(KEYS, only_two),
        {"client-selector": "all"},
        min_replies=3,
        give_up_after=0.2,
        callbacks=[diary],
    )
    with pytest.raises(RunFailed) as caught:
        loop.run()
    text = str(caught.value)
    assert "2 of 8 clients answered, 3 are needed" in text
    assert "round.give-up-after = 0.2" in text
    assert "broke" in text
    assert diary.calls[-1] == "end: failed"
    assert notes.of(RunFinished)[0].reason == "failed"


@pytest.mark.parametrize("keys", [KEYS, ["1"] * 5], ids=["own names", "one name"])
def test_all_clients_failing_ends_the_run_soon(keys: list[str]) -> None:
    grid = FakeGrid(keys, dict.fromkeys(keys, failing))
    loop, _ = make(grid, {"client-selector": "all"}, give_up_after=600)
    started = time.monotonic()
    grid_limit = 40

    def watch(message: Message, key: str, look: int) -> list[Message]:
        assert len(grid.of_kind("train")) < grid_limit, "goes on although it is hopeless"
        return failing(message, key)

    grid.behaviours = dict.fromkeys(keys, watch)
    with pytest.raises(RunFailed, match="broke"):
        loop.run()
    assert time.monotonic() - started < 10


def test_waits_for_somebody_to_connect() -> None:
    grid = FakeGrid([])
    timer = threading.Timer(0.2, lambda: grid.nodes.update(FakeGrid(KEYS).nodes))
    timer.start()
    loop, _ = make(grid, num_rounds=1)
    assert loop.run() == "completed"
    timer.join()


def test_nobody_ever_connects() -> None:
    loop, _ = make(FakeGrid([]), give_up_after=0.1)
    with pytest.raises(
        RunFailed, match=r"no client is connected.*This server has flwr \d"
    ) as failed:
        loop.run()
    assert "SuperNodes up to 1.39" in str(failed.value) or "SuperNodes from 1.40" in str(
        failed.value
    )


def test_after_a_while_without_anybody_the_log_says_once_what_to_check(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_LONELY", 0.05)
    grid = FakeGrid([])
    timer = threading.Timer(0.4, lambda: grid.nodes.update(FakeGrid(KEYS).nodes))
    timer.start()
    loop, _ = make(grid, num_rounds=1)
    assert loop.run() == "completed"
    timer.join()
    assert len([line for line in said if "no SuperNode is connected" in line]) == 1


def test_clients_of_whom_none_can_be_chosen_are_not_taken_for_nobody() -> None:
    class Nobody(FedAvg):
        def configure_train(self, *_: Any) -> list[Message]:
            return []

    loop, _ = make(FakeGrid(KEYS), strategy=Nobody(), give_up_after=0.1)
    with pytest.raises(RunFailed, match=r"none of the connected clients could be chosen$"):
        loop.run()


def test_a_run_for_nobody_who_is_here_says_whom_it_is_for() -> None:
    loop, _ = make(FakeGrid(KEYS), give_up_after=0.1)
    loop.federation.admission = Admission(tags=["site-x"])
    with pytest.raises(RunFailed, match=r"chosen; the run is only for clients\.tags = 'site-x'$"):
        loop.run()


def test_an_aggregation_that_raises_is_a_failed_round_not_a_crash() -> None:
    class Moody(FedAvg):
        tries = 0

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            self.tries += 1
            list(replies)
            if self.tries == 1:
                raise ZeroDivisionError("moody")
            return to_record(small_model()), None

    moody = Moody(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    loop, _ = make(FakeGrid(KEYS), strategy=moody, num_rounds=1)
    assert loop.run() == "completed"
    assert moody.tries == 2


def test_a_model_that_is_not_finite_is_not_taken() -> None:
    """From there no round leads back."""

    class Diverging(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            list(replies)
            return to_record({n: a * np.nan for n, a in small_model().items()}), None

    strategy = Diverging(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    loop, _ = make(FakeGrid(KEYS), strategy=strategy, give_up_after=0.05)
    with pytest.raises(RunFailed):
        loop.run()
    assert np.isfinite(from_record(loop.arrays)["layer.weight"]).all()


@pytest.mark.parametrize(
    ("count", "over_commit", "asked"), [(5, 0.1, 6), (5, 0.3, 7), (4, 0.5, 6), (6, 0.2, 8)]
)
def test_over_commitment_waits_for_as_many_as_were_wanted(
    count: int, over_commit: float, asked: int
) -> None:
    """Whoever asks six to have five can do without one."""
    silent = {"0": never}
    keys = {"clients-per-round": count, "round.over-commit": over_commit, "round.deadline": 3.0}
    loop, notes = make(FakeGrid(KEYS, silent), keys, num_rounds=4)
    started = time.monotonic()
    assert loop.run() == "completed"
    assert time.monotonic() - started < 2.5, "waited for the deadline"
    exchanges = [event for event in notes.of(Exchanged) if event.kind == "train"]
    assert all(event.sent == asked for event in exchanges)
    assert any("0" in event.late for event in exchanges), "the silent one was asked"


def test_over_commitment_does_not_stop_before_as_many_as_were_wanted() -> None:
    """All eight are asked as there are no more: eight are wanted, not five."""
    late = {k: lambda m, key, look: honest(m, key) if look > int(key) else [] for k in KEYS}
    keys = {"clients-per-round": 8, "round.over-commit": 0.5}
    loop, notes = make(FakeGrid(KEYS, late), keys, num_rounds=1)
    loop.run()
    (exchange,) = [event for event in notes.of(Exchanged) if event.kind == "train"]
    assert exchange.received == 8


def state_bytes(loop: Loop) -> bytes:
    return tree.to_bytes(loop.state(), "test")


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedyogi", "krum"])
@pytest.mark.parametrize("selector", ["random", "round-robin"])
def test_a_resumed_run_equals_one_never_stopped(aggregator: str, selector: str) -> None:
    keys = {"aggregator": aggregator, "client-selector": selector, "uplink": "top-k"}
    whole, _ = make(FakeGrid(KEYS), keys, num_rounds=6)
    whole.run()

    half, _ = make(FakeGrid(KEYS), keys, num_rounds=3)
    half.run()
    rest, notes = make(FakeGrid(KEYS), keys, num_rounds=6)
    rest.load_state(tree.from_bytes(state_bytes(half), "test"))
    assert rest.round == 3
    assert rest.run() == "completed"
    assert_same(rest.arrays, whole.arrays)
    assert [event.round for event in notes.of(RoundFinished)] == [4, 5, 6]


def interrupting(number: int, at_round: int) -> Any:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        if message.content["config"]["server-round"] == at_round:
            os.kill(os.getpid(), number)
        return honest(message, key)

    return behave


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedadam"])
def test_a_signal_ends_the_run_and_the_last_whole_round_can_be_resumed(
    number: signal.Signals, aggregator: str
) -> None:
    keys = {"aggregator": aggregator, "client-selector": "round-robin"}
    whole, _ = make(FakeGrid(KEYS), keys)
    whole.run()

    diary = Diary()
    grid = FakeGrid(KEYS, {key: interrupting(number, 3) for key in "34567"})
    stopped, notes = make(grid, keys, callbacks=[diary])
    assert stopped.run() == "interrupted"
    assert diary.calls[-1] == "end: interrupted"
    assert notes.of(RunFinished)[0].message == f"received {number.name}"
    assert stopped.snapshot["round"] == 2

    rest, _ = make(FakeGrid(KEYS), keys)
    rest.load_state(tree.from_bytes(tree.to_bytes(stopped.snapshot, "test"), "test"))
    rest.run()
    assert_same(rest.arrays, whole.arrays)


def test_signal_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    loop, _ = make(FakeGrid(KEYS, dict.fromkeys(KEYS, interrupting(signal.SIGTERM, 1))))
    loop.run()
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_run_in_a_thread_works_without_signals() -> None:
    reasons: list[str] = []
    loop, _ = make(FakeGrid(KEYS), num_rounds=2)
    thread = threading.Thread(target=lambda: reasons.append(loop.run()))
    thread.start()
    thread.join(30)
    assert reasons == ["completed"]


def test_an_interrupt_is_not_taken_for_a_fault_of_a_strategy() -> None:
    class Interrupting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().aggregate_train(server_round, replies)

    strategy = Interrupting(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    loop, _ = make(FakeGrid(KEYS), strategy=strategy)
    assert loop.run() == "interrupted"


def test_an_error_in_the_evaluation_ends_the_run_as_failed() -> None:
    diary = Diary()

    def broken(arrays: ArrayRecord) -> tuple[float, float]:
        raise RuntimeError("no test data")

    loop, notes = make(FakeGrid(KEYS), evaluate=broken, callbacks=[diary])
    with pytest.raises(RuntimeError, match="no test data"):
        loop.run()
    assert notes.of(RunFinished)[0].reason == "failed"
    assert len(diary.calls) == 2


def test_a_model_that_cannot_be_evaluated_is_refused_and_the_round_tried_again() -> None:
    looked: list[ArrayRecord] = []

    def evaluate(arrays: ArrayRecord) -> dict[str, float]:
        looked.append(arrays)
        if len(looked) == 3:  # in round 2
            raise IndexError("index 1099511627776 is out of bounds")
        return {"accuracy": 0.5, "loss": 1.0}

    loop, notes = make(FakeGrid(KEYS), {"aggregator": "fedadam"}, evaluate=evaluate)
    assert loop.run() == "completed"
    assert [event.round for event in notes.of(Evaluated)] == [0, 1, 2, 3, 4]
    assert [event.round for event in notes.of(Aggregated)] == [1, 2, 2, 3, 4]


def test_models_that_can_never_be_evaluated_end_the_run_with_a_reason() -> None:
    def evaluate(arrays: ArrayRecord) -> dict[str, float]:
        if from_record(arrays)["layer.bias"].tolist() != small_model()["layer.bias"].tolist():
            raise IndexError("index 1099511627776 is out of bounds")
        return {"accuracy": 0.5, "loss": 1.0}

    loop, _ = make(FakeGrid(KEYS), evaluate=evaluate)
    with pytest.raises(RunFailed, match="cannot be evaluated: IndexError"):
        loop.run()
    assert loop.round == 0
    np.testing.assert_equal(from_record(loop.arrays), small_model())


def test_the_snapshot_holds_the_state_of_callbacks() -> None:
    diary = Diary()
    loop, _ = make(FakeGrid(KEYS), callbacks=[diary], num_rounds=2)
    loop.run()
    assert loop.snapshot["callbacks"] == {"Diary": {"calls": 3}}
    assert loop.snapshot["round"] == 2


class Nervous(FedAvg):
    """Cannot prepare what it is asked for at first."""

    def __init__(self, kind: str, failures: int) -> None:
        super().__init__(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
        self.kind, self.failures = kind, failures

    def _think(self, kind: str) -> None:
        if kind == self.kind and self.failures:
            self.failures -= 1
            raise ZeroDivisionError("nervous")

    def configure_train(self, *given: Any) -> Any:
        self._think("train")
        return super().configure_train(*given)

    def configure_evaluate(self, *given: Any) -> Any:
        self._think("evaluate")
        return super().configure_evaluate(*given)


def test_a_round_that_cannot_be_prepared_is_tried_again() -> None:
    nervous = Nervous("train", 2)
    loop, notes = make(FakeGrid(KEYS), strategy=nervous, num_rounds=2)
    assert loop.run() == "completed"
    assert nervous.failures == 0
    assert [event.round for event in notes.of(Aggregated)] == [1, 2]


def test_a_round_that_can_never_be_prepared_ends_the_run_with_a_reason() -> None:
    loop, _ = make(FakeGrid(KEYS), strategy=Nervous("train", 10**6), give_up_after=0.05)
    with pytest.raises(RunFailed, match="preparing failed: ZeroDivisionError: nervous"):
        loop.run()


def test_an_evaluation_that_cannot_be_prepared_is_left_out() -> None:
    loop, notes = make(FakeGrid(KEYS), strategy=Nervous("evaluate", 1), num_rounds=2)
    assert loop.run() == "completed"
    assert [e.round for e in notes.of(Evaluated) if e.where == "clients"] == [2]


def test_a_client_that_lets_a_round_wait_is_left_out_of_the_next() -> None:
    keys = {"clients-per-round": 7, "round.deadline": 0.05}
    loop, notes = make(FakeGrid(KEYS, {"3": never}), keys, num_rounds=6)
    assert loop.run() == "completed"
    late = [e.round for e in notes.of(Exchanged) if e.kind == "train" and "3" in e.late]
    assert late
    for event in notes.of(Selected):
        if event.round is not None and event.round - 1 in late:
            assert "3" not in event.chosen


def test_events_of_layers_and_of_the_loop_go_to_one_journal() -> None:
    loop, notes = make(FakeGrid(KEYS), num_rounds=1)
    assert loop.federation is loop.grid.federation is loop.strategy.federation
    loop.run()
    kinds = [type(event) for event in notes.events]
    wanted = [Selected, Exchanged, Aggregated, Evaluated, RoundFinished, RunFinished]
    assert [kind for kind in kinds if kind in wanted][-6:] == wanted


def test_messages_say_which_run_they_are_of() -> None:
    grid = FakeGrid(KEYS)
    loop, _ = make(grid, {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}, num_rounds=1)
    loop.federation.run = "monday"
    loop.run()
    for kind in ("train", "evaluate"):
        assert {m.content[CONFIG][RUN] for m in grid.of_kind(kind)} == {"monday"}


@pytest.mark.parametrize("selector", ["local-loss", "power-of-choice"])
def test_a_moment_in_which_nobody_answers_questions_does_not_end_the_run(selector: str) -> None:
    """Who rests does so for some rounds: a round that is tried again must not wait for that."""
    moment = time.monotonic() + 0.3

    def absent(message: Message, key: str, look: int) -> list[Message]:
        if time.monotonic() < moment:
            return []
        if message.metadata.message_type == SUMMARY:
            return [answer(message, {METRICS: MetricRecord({"loss": 1.0})})]
        return honest(message, key)

    keys = {"client-selector": selector, "round.deadline": 0.05}
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, absent))
    loop, _ = make(grid, keys, num_rounds=2, give_up_after=3.0)
    assert loop.run() == "completed"
