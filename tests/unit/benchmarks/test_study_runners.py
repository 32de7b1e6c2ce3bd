"""What the runners and the data of the studies promise."""

import numpy as np
import pytest
from forager.benchmarks.attacks import is_hostile
from forager.benchmarks.security import run_attacked
from forager.benchmarks.studies.data import blobs_file, prepared
from forager.benchmarks.studies.runs import run_study
from forager.server_app.run_folder import RunFolder
from forager.tools.experiments.records import SweepError

SMALL = {
    **{"task": "digits", "model": "softmax", "num-clients": 10, "num-server-rounds": 4},
    **{"partition": "iid", "report": False, "checkpoint.every": 0, "learning-rate": 0.1},
}


@pytest.mark.parametrize("selector", ["all", "dissimilarity"])
def test_attackers_spoil_every_reply_and_do_not_fail(tmp_path, selector):
    # A rule that asks first sends no model to train from: clients hold it already.
    settings = {"client-selector": selector, "clients-per-round": 5}
    result = run_attacked(
        {**SMALL, **settings, "attack": "not a number", "output-dir": str(tmp_path)}
    )
    events = RunFolder.open(result.folder).read_events()
    chosen = [key for e in events if e["event"] == "selected" for key in e["chosen"]]
    aside = [e for e in events if e["event"] == "quarantined"]
    assert [e for e in events if e.get("failed")] == []
    assert len(aside) == sum(map(is_hostile, chosen)) > 1


def test_a_run_under_attack_counts_turns_and_asks_honest_clients(tmp_path):
    more = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2, "client-selector": "all"}
    attack = {"attack": "labels turned round", "output-dir": str(tmp_path)}
    row = run_attacked({**SMALL, **more, **attack}).rounds[-1]
    assert row["turns-hostile"] == pytest.approx(0.2)
    assert 0 < abs(row["accuracy-honest"] - row["clients-accuracy-mean"]) < 0.1


def test_values_of_samples_are_compared_and_timed(tmp_path):
    found = run_study(
        {
            **{**SMALL, "model": "mlp", "study.runner": "values", "evaluate-every": 4},
            **{"seed": 0, "output-dir": str(tmp_path)},
        }
    )
    (row,) = found.rounds
    assert 0.5 < row["agreement of layers"] < 1
    assert -1 < row["agreement of rounds"] < row["agreement of layers"]
    assert 0 < row["ms of the loss"] < row["ms of all layers"]


def test_a_device_that_values_samples_pays_for_it(tmp_path):
    def cost(**changes):
        settings = {**SMALL, "model": "mlp", "study.runner": "devices", **changes}
        (row,) = run_study({**settings, "seed": 0, "output-dir": str(tmp_path)}).rounds
        return row

    plain = cost(**{"data-selector": "reservoir"})
    loss = cost(**{"data-selector": "high-loss"})
    head = cost(**{"data-selector": "ode-balanced"})
    every = cost(**{"data-selector": "ode-balanced", "ode.layers": 0})
    assert plain["bytes of a look"] == 0
    for name in ("bytes of what is held", "bytes of a look"):
        assert plain[name] < loss[name] <= head[name] < every[name]
    assert loss["bytes of what is held"] < head["bytes of what is held"]
    assert plain["ms of an offer"] < head["ms of an offer"]


def test_blobs_have_one_width_and_depend_on_the_seed(tmp_path):
    with np.load(blobs_file(2.0, 0, tmp_path)) as file:
        first = dict(file)
    widths = [first["x_train"][first["y_train"] == c].std(axis=0).mean() for c in range(10)]
    assert widths == pytest.approx([2.0] * 10, rel=0.05)
    with np.load(blobs_file(2.0, 1, tmp_path)) as file:
        assert not np.array_equal(file["x_train"], first["x_train"])


def test_ids_follow_labels(tmp_path):
    with np.load(prepared("digits-by-label", tmp_path)) as file:
        labels, users = file["y_train"], file["user_train"]
    assert len(np.unique(users)) == 100
    means = [labels[users == u].mean() for u in range(100)]
    assert means == sorted(means)
    assert max(len(np.unique(labels[users == u])) for u in range(100)) <= 2


def test_an_unknown_data_set_is_named(tmp_path):
    with pytest.raises(SweepError, match="'x' is not known; there are"):
        prepared("x", tmp_path)
