"""The app of docs/library.md as it stands there, under Flower's own loop: somebody else's app."""

import logging
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg
from forager.core.log.events import CoresetsUsed, Event, Quarantined, Selected
from forager.core.wire.keys import KIND, QUESTION
from forager.strategies.federation.roster import Roster
from forager.tools.engine.app_grid import AppGrid

import forager

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
BLOCK = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CLIENTS, ROUNDS = 6, 4


def write_app(folder: Path) -> dict[str, str]:
    """Write the files of the page, and what Flower's layout has besides."""
    files = dict(BLOCK.findall(PAGE.read_text()))
    (folder / "quickstart").mkdir()
    (folder / "quickstart" / "__init__.py").touch()
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("third-party")
    write_app(folder)
    sys.path.insert(0, str(folder))
    yield import_module
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


class OwnAppGrid(AppGrid):
    """Remembers what clients were asked; some may have another app."""

    def __init__(self, client_app: Any) -> None:
        super().__init__(client_app, CLIENTS, {"lr": 0.1})
        self.others: dict[int, Any] = {}
        self.asked: Counter[str] = Counter()
        self.trained: list[dict[str, Any]] = []  # records and examples, before layers read them

    def answer(self, message: Message) -> Message:
        record = message.content.get(QUESTION)
        kind = str(record[KIND]) if record is not None else message.metadata.message_type
        own = self.app
        node_config = self.contexts[message.metadata.dst_node_id].node_config
        self.app = self.others.get(int(node_config["partition-id"]), own)
        reply = super().answer(message)
        self.app = own
        self.asked[kind if reply.has_content() else f"{kind} failed"] += 1
        if kind == "train" and reply.has_content():
            examples = reply.content["metrics"]["num-examples"]
            self.trained.append({"records": set(reply.content), "examples": examples})
        return reply


class Run:
    def __init__(self, app: Any, strategy: Any, without_mod: Iterable[int] = ()) -> None:
        task = app("quickstart.task")
        self.grid = OwnAppGrid(app("quickstart.client_app").app)
        for partition in without_mod:
            self.grid.others[partition] = plain_app(app)
        self.events: list[Event] = []
        if hasattr(strategy, "federation"):
            strategy.federation.journal = self.events.append
        torch.manual_seed(3)
        net, (x, y) = task.Net(), task.samples(1000, 400)
        self.accuracy: list[float] = []

        def evaluate(server_round: int, arrays: Any) -> Any:
            net.load_state_dict(arrays.to_torch_state_dict())
            self.accuracy.append(task.test(net, x, y))
            return forager_metrics(self.accuracy[-1])

        self.result = strategy.start(
            grid=self.grid,
            initial_arrays=array_record(net),
            num_rounds=ROUNDS,
            timeout=60.0,
            evaluate_fn=evaluate,
        )

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def array_record(net: Any) -> Any:
    from flwr.app import ArrayRecord

    return ArrayRecord(net.state_dict())


def forager_metrics(accuracy: float) -> Any:
    from flwr.app import MetricRecord

    return MetricRecord({"accuracy": accuracy})


def plain_app(app: Any) -> Any:
    """Return the app of the page as it was before anybody thought of Forager."""
    from flwr.clientapp import ClientApp

    module, plain = app("quickstart.client_app"), ClientApp()
    plain.train()(module.train_client)
    plain.evaluate()(module.evaluate_client)
    return plain


def test_cosage_asks_through_the_mod_and_chooses(app: Any) -> None:
    run = Run(app, app("quickstart.strategies").strategy("cosage"))
    chosen = [event.chosen for event in run.of(Selected) if event.phase == "train"]
    assert [len(keys) for keys in chosen] == [3] * ROUNDS
    assert set().union(*chosen) == {str(i) for i in range(CLIENTS)}
    assert run.grid.asked["query.identify"] == CLIENTS
    assert run.grid.asked["query.summary"] == CLIENTS * (ROUNDS - 1)
    assert not [name for name in run.grid.asked if "failed" in name]
    assert not run.of(Quarantined)
    scores = [event.scores for event in run.of(Selected) if event.phase == "train"][-1]
    assert len(set(scores)) > 1
    assert run.accuracy[-1] > run.accuracy[0] + 0.2
    assert set(run.result.train_metrics_clientapp) == set(range(1, ROUNDS + 1))
    assert set(run.result.evaluate_metrics_clientapp) == set(range(1, ROUNDS + 1))


def test_log_and_metrics_are_those_of_the_app(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    run = Run(app, app("quickstart.strategies").strategy("cosage"))
    split = Run(app, app("quickstart.strategies").strategy("split-test"))
    assert caplog.messages.count("configure_train: chose 3 of 6 nodes") == ROUNDS
    assert caplog.messages.count("configure_train: chose 6 of 6 nodes") == ROUNDS
    assert "Sampled" not in caplog.text
    assert "Fraction: train (0.50) | evaluate ( 1.00)" in caplog.text
    for result in (run.result, split.result):
        assert {name for one in result.train_metrics_clientapp.values() for name in one} == {
            "train_loss"
        }


def test_split_test_finds_the_two_kinds_of_clients(app: Any) -> None:
    strategy = app("quickstart.strategies").strategy("split-test")
    run = Run(app, strategy)
    assert len(run.grid.trained) == CLIENTS * ROUNDS
    kinds = {
        frozenset(k for k, c in strategy.members.items() if c == cohort)
        for cohort in set(strategy.members.values())
    }
    assert kinds == {frozenset("024"), frozenset("135")}
    assert set(strategy.cohort_models()) == set(strategy.members.values())


def test_gcfl_trains_on_coresets(app: Any) -> None:
    run = Run(app, app("quickstart.strategies").strategy("gcfl"))
    used = run.of(CoresetsUsed)
    assert [set(event.sizes) for event in used] == [{40}] * ROUNDS
    assert used[0].without == 0  # the first choice is at t = 0, as in algorithm 1
    assert used[0].chose == 3
    assert sum(event.chose for event in used[1:]) >= 3
    assert {reply["examples"] for reply in run.grid.trained} == {40}
    assert not run.of(Quarantined)
    assert run.accuracy[-1] > run.accuracy[0] + 0.1


def test_ode_trains_on_what_a_stream_left(app: Any) -> None:
    run = Run(app, app("quickstart.strategies").strategy("ode"))
    assert not run.of(Quarantined)
    assert run.grid.asked["query.ingest"] > 0
    assert not [name for name in run.grid.asked if "failed" in name]
    assert {"estimate", "plan"} <= run.grid.trained[-1]["records"]
    assert run.accuracy[-1] > run.accuracy[0]


def test_ios_groups_clients_by_the_parameters_that_matter_to_them(app: Any) -> None:
    strategy = app("quickstart.strategies").strategy("ios")
    run = Run(app, strategy)
    assert not run.of(Quarantined)
    assert "support" in run.grid.trained[-1]["records"]
    assert set(strategy.members) == {str(i) for i in range(CLIENTS)}


def test_top_k_sends_a_part_of_the_update(app: Any) -> None:
    run = Run(app, app("quickstart.strategies").strategy("top-k"))
    assert not run.of(Quarantined)
    assert all("arrays" not in reply["records"] for reply in run.grid.trained)
    assert all("sparse" in reply["records"] for reply in run.grid.trained)
    assert run.accuracy[-1] > run.accuracy[0] + 0.1


@pytest.mark.parametrize("name", ["scaffold", "moon", "fedprox"])
def test_forager_trains_where_an_objective_changes_gradients(app: Any, name: str) -> None:
    from flwr.clientapp import ClientApp

    task, module = app("quickstart.task"), app("quickstart.client_app")
    mod = forager.client_mod(model=task.Net, data=module.own_data, trains=True)
    trained = ClientApp(mods=[mod])
    trained.train()(lambda message, context: pytest.fail("the app need not train"))
    trained.evaluate()(module.evaluate_client)
    module.app, before = trained, module.app
    try:
        run = Run(app, app("quickstart.strategies").strategy(name))
    finally:
        module.app = before
    assert not run.of(Quarantined)
    assert not [kind for kind in run.grid.asked if "failed" in kind]
    assert run.accuracy[-1] > run.accuracy[0] + 0.1


def test_an_objective_is_not_left_out_silently(app: Any) -> None:
    run = Run(app, app("quickstart.strategies").strategy("scaffold"))
    assert run.grid.asked["train failed"] == 3 * ROUNDS
    assert not run.grid.trained


@pytest.mark.parametrize("name", ["cosage", "gcfl", "ode", "split-test", "ios"])
def test_the_loop_of_forager_leaves_a_folder_and_goes_on(
    app: Any, tmp_path: Path, name: str
) -> None:
    strategies, task = app("quickstart.strategies"), app("quickstart.task")
    settings = {**strategies.LOCAL, **strategies.METHODS[name], "output-dir": str(tmp_path)}
    settings |= {"num-server-rounds": 2, "fraction-train": 0.5, "clients-per-round": 0}

    def run(**more: Any) -> Any:
        grid = OwnAppGrid(app("quickstart.client_app").app)
        samples = task.samples(999, 400)
        return forager.run(grid, settings | more, model=task.Net, data=samples)

    ran = run()
    assert ran.reason == "completed"
    assert {"events.jsonl", "report.html", "rounds.csv"} <= {p.name for p in ran.folder.iterdir()}
    events = (ran.folder / "events.jsonl").read_text()
    assert '"quarantined"' not in events
    longer = {"num-server-rounds": 4, "report": False}
    again = run(**longer, **{"resume-from": str(ran.folder)})
    assert again.folder == ran.folder
    assert len((ran.folder / "rounds.csv").read_text().splitlines()) >= 5


def test_a_client_without_the_mod_is_named_and_chosen_by_age(app: Any, said: list[str]) -> None:
    run = Run(app, app("quickstart.strategies").strategy("cosage"), without_mod=[4, 5])
    (line,) = [line for line in said if "no forager.client_mod" in line]
    nodes = [
        Roster.nameless(node)
        for node in run.grid.contexts
        if run.grid.contexts[node].node_config["partition-id"] in (4, 5)
    ]
    assert all(node in line for node in nodes)
    assert run.grid.asked["query.summary"] == 4 * (ROUNDS - 1)
    assert run.grid.asked["query.identify failed"] == 2
    chosen = Counter(k for e in run.of(Selected) if e.phase == "train" for k in e.chosen)
    assert all(chosen[node] for node in nodes)
    assert sum(chosen.values()) == 3 * ROUNDS
    assert run.accuracy[-1] > run.accuracy[0] + 0.2


def test_coresets_take_clients_without_the_mod_as_they_are(app: Any) -> None:
    strategy = app("quickstart.strategies").strategy("gcfl")
    run = Run(app, strategy, without_mod=range(CLIENTS))
    assert {size for event in run.of(CoresetsUsed) for size in event.sizes} == {80}
    assert not run.of(Quarantined)


def test_a_mod_without_hooks_answers_what_needs_none(app: Any) -> None:
    from flwr.clientapp import ClientApp

    module, bare = app("quickstart.client_app"), ClientApp(mods=[forager.client_mod()])
    bare.train()(module.train_client)
    grid = OwnAppGrid(bare)
    strategy = forager.strategy(
        {"client-selector": "cosage", "summary.mode": "piggyback"},
        FedAvg(fraction_train=0.5, fraction_evaluate=0.0),
        model=app("quickstart.task").Net,
    )
    events: list[Event] = []
    strategy.federation.journal = events.append
    net = app("quickstart.task").Net()
    strategy.start(grid=grid, initial_arrays=array_record(net), num_rounds=3, timeout=60.0)
    assert grid.asked == {"query.identify": CLIENTS, "train": 9}
    scores = [event.scores for event in events if isinstance(event, Selected)]
    assert any(score is not None and -1 < score < 1 for score in scores[-1])


def test_your_own_rule_runs(app: Any) -> None:
    rule, net = app("quickstart.rules").EveryThird(), app("quickstart.task").Net
    strategy = forager.strategy("fedavg", FedAvg(fraction_train=1.0), model=net, selector=rule)
    run = Run(app, strategy)
    chosen = [set(event.chosen) for event in run.of(Selected) if event.phase == "train"]
    assert not chosen[0]
    assert any(chosen)


def test_what_cannot_be_is_refused_by_name() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"FedAvg\(arrayrecord_key='model'\).*'arrays'"):
        forager.strategy("cosage", FedAvg(arrayrecord_key="model"), model=net)
    with pytest.raises(TypeError, match="expected one of Flower's strategies"):
        forager.strategy("cosage", forager.strategy("fedavg", model=net), model=net)
    with pytest.raises(TypeError, match=r"expected a rule such as CosAge\(\)"):
        forager.strategy("fedavg", model=net, selector="cosage")
    with pytest.raises(ValueError, match="did you mean 'cosage'"):
        forager.strategy("cosag", model=net)
    with pytest.raises(ValueError, match=r"coreset.budget = 1\.5"):
        forager.strategy({"strategy": "gcfl", "coreset.budget": 1.5}, model=net)
    with pytest.raises(ValueError, match=r"gcfl.*server"):
        forager.strategy("gcfl", model=net)
    with pytest.raises(ValueError, match="model: the task and the model are your app's own"):
        forager.strategy({"model": "mlp"}, model=net)
    with pytest.raises(ValueError, match="trains=True needs a model"):
        forager.client_mod(trains=True)
    with pytest.raises(ValueError, match="give both or neither"):
        forager.client_mod(model=object())


def test_the_server_side_is_at_most_eight_lines() -> None:
    files = dict(BLOCK.findall(PAGE.read_text()))
    used = [line for line in files["quickstart/strategies.py"].splitlines() if "forager" in line]
    assert len(used) == 2
    mentions = [
        line for line in files["quickstart/client_app.py"].splitlines() if "forager" in line
    ]
    assert len(mentions) == 3  # the import, the mod, and for coresets one line
