"""The Auxo benchmark asks for runs that can be run, and its unreliable clients are unreliable."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.benchmarks import split_reading
from forager.benchmarks.auxo import BASELINE, METHODS, PLANTED, cells, gains_table, main
from forager.benchmarks.cohort_runs import run_with_cohorts
from forager.benchmarks.planted_groups import METHODS as GROUP_METHODS
from forager.benchmarks.planted_groups import planted_cells, planted_table
from forager.benchmarks.unreliable import (
    RECORDS,
    chosen_clients,
    corrupted_clients,
    forgetful_clients,
)
from forager.client_app import app
from forager.client_app.batch import ClientBatch
from forager.client_app.device.state import ClientState
from forager.core.config import Scalar, read_config
from forager.core.tasks import TaskSpec, load_task
from forager.core.wire.requests import Requests
from forager.strategies.federation.accountant import gaussian_epsilon
from forager.tools.experiments.records import SweepRecord
from forager.tools.experiments.results import Results

OWN = ("records-lost", "corrupted")

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@pytest.mark.parametrize(
    "setting", [*PLANTED, "users", "sensitivity", "lost", "corrupted", "privacy", "planted"]
)
def test_every_cell_is_a_config_of_its_own(setting: str) -> None:
    every = cells(setting, rounds=3, data=Path("some.npz"), clients=20, model="mlp")
    assert len({cell.digest for cell in every}) == len(every)
    for cell in every:
        read_config({key: value for key, value in cell.config.items() if key not in OWN})


def test_methods_are_compared_with_the_same_without_cohorts() -> None:
    for cell, one in BASELINE.items():
        own = ("cohort", "auxo.")
        with_cohorts = {k: v for k, v in METHODS[cell].items() if not k.startswith(own)}
        if cell != "split-test, indices only":
            assert with_cohorts == METHODS[one]


def test_noise_is_as_much_as_the_promise_takes() -> None:
    for cell in cells("privacy", rounds=40):
        if "epsilon" in cell.name:
            multiplier = float(cell.config["dp.noise-multiplier"]) / 2
            promised = float(cell.name.split()[-1])
            assert gaussian_epsilon(1e-5, multiplier, 40) == pytest.approx(promised, rel=1e-4)


def run_of(cell: str, curve: Sequence[float], variance: float, pace: float) -> SweepRecord:
    rows: list[dict[str, object]] = [
        {
            "round": number,
            "clients-accuracy-mean": accuracy,
            "clients-accuracy-variance": variance,
            "simulated": pace * number,
        }
        for number, accuracy in enumerate(curve)
    ]
    return SweepRecord(cell, 0, "", "completed", "", "", 1.0, {}, rows)


def test_gains_are_points_variance_and_time_to_the_same_accuracy() -> None:
    one = run_of("fedavg", [0.1, 0.2, 0.3, 0.4, 0.5], 0.02, pace=10.0)
    auxo = run_of("split-test (fedavg)", [0.1, 0.3, 0.55, 0.6, 0.6], 0.01, pace=10.0)
    never = run_of("cfl", [0.1, 0.1, 0.1, 0.2, 0.4], 0.03, pace=10.0)
    runs = {record.cell: {0: record} for record in (one, auxo, never)}
    rows = gains_table(Results(runs, [])).rows
    assert rows[1] == ["split-test (fedavg)", "fedavg", "+10.0", "-50 %", "2.0 (1 of 1)"]
    assert rows[2] == ["cfl", "fedavg", "-10.0", "+50 %", "-"]


def test_planted_groups_are_one_row_per_kind_with_all_methods_side_by_side() -> None:
    names = [cell.name for cell in planted_cells()]
    assert len(names) == 6 * len(GROUP_METHODS)
    kept = [name for name in names if name.startswith("turned images, 2: ")]
    runs = {}
    for number, name in enumerate(kept):
        row = {"round": 1, "clients-accuracy-mean": number / 10, "ari": 1.0}
        row |= {"clients-accuracy-worst-10": number / 100}
        runs[name] = {0: SweepRecord(name, 0, "", "completed", "", "", 1.0, {}, [row])}
    header, row = planted_table(Results(runs, [])).rows
    assert header[1:6] == list(GROUP_METHODS)
    assert row[0] == "turned images, 2"
    assert row[1:6] == ["0.000", "0.100", "0.200", "0.300", "0.400"]
    assert row[6:] == ["1.00", "1.00", "0.000, 0.020, 0.030"]


def test_forgetful_clients_come_without_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def train(batch: ClientBatch) -> list[Message]:
        seen.extend(RECORDS in ClientState(context) for context in batch.contexts)
        return []

    monkeypatch.setitem(app.HANDLERS, "train", train)
    contexts = [Context(1, n, {"partition-id": n}, RecordDict(), {}) for n in range(200)]
    for context in contexts:
        state = ClientState(context)
        state[RECORDS] = {"serial": 1}
        state.save()
    with forgetful_clients(0.2, seed=0):
        message = Message(RecordDict(), dst_node_id=1, message_type="train")
        app.HANDLERS["train"](ClientBatch(Requests(message, range(200)), contexts))
    assert 0.1 < seen.count(False) / 200 < 0.3
    assert app.HANDLERS["train"] is train


def test_corrupted_clients_train_on_random_labels_and_test_on_clean_ones() -> None:
    task = load_task(TaskSpec(task="digits", partition="iid", client_test_share=0.2))
    clean = [task.client_data(client, 10) for client in range(10)]
    with corrupted_clients(0.2, 10):
        now = [task.client_data(client, 10) for client in range(10)]
    for client in range(10):
        same = torch.equal(now[client].train.y, clean[client].train.y)
        assert same == (client not in chosen_clients(0.2, 10))
        assert torch.equal(now[client].test.y, clean[client].test.y)
    assert task.client_data(0, 10) is clean[0]


def test_rows_tell_of_cohorts_the_clock_and_privacy(tmp_path: Path) -> None:
    settings: dict[str, Scalar] = {
        "num-server-rounds": 2,
        "partition": "iid",
        "cohorts": "split-test",
        "groups.kind": "label-permutation",
        "groups.count": 2,
        "devices.slow": True,
        "privacy": "local-dp",
        "dp.noise-multiplier": 4.0,
        "records-lost": 0.5,
        "corrupted": 0.1,
        "output-dir": str(tmp_path),
    }
    last = run_with_cohorts(settings).rounds[-1]
    assert (last["cohorts"], last["ari"]) == (1, 0.0)
    assert last["simulated"] > 0
    assert last["epsilon"] == pytest.approx(gaussian_epsilon(1e-5, 2.0, 2))


def test_what_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["users"])
    assert "users needs an .npz file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["planted", "--samples", "100"])
    assert "planted runs on digits" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["permuted", "--only", "fedsgd"])
    assert "--only: ['fedsgd']; there are" in capsys.readouterr().err


def test_planted_groups_are_split_by_j_and_not_by_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(split_reading.SETTINGS, "num-server-rounds", 12)
    by_j, by_root = (split_reading.split("label-permutation", 2, 0, e) for e in (0.5, 1.0))
    assert (by_j[0], by_root[0]) == (2, 1)
    assert by_j[1] < 2**-0.5
