"""Small functions of core/tasks, each by an example."""

from pathlib import Path

import numpy as np
import pytest
from forager.core.tasks import TaskError, TaskSpec, load_task
from forager.core.tasks.datasets.hugging_face import _names_a_file
from forager.core.tasks.datasets.newsgroups import strip
from forager.core.tasks.datasets.poems import encoded
from forager.core.tasks.datasets.raw import input_range, kind_of, model_inputs
from forager.core.tasks.datasets.storage import cache_folder
from forager.core.tasks.errors import STARTED_IN, advice, imported, one_line
from forager.core.tasks.groups import affine_shift, group_of, label_permutation, rotation
from forager.core.tasks.metrics import Metric, label, of_classes, title
from forager.core.tasks.noise import classes_after_noise
from forager.core.tasks.noise.corruptions import clouds
from forager.core.tasks.noise.noisy import (
    Noisy,
    draw_affected,
    kept_classes,
    random_labels,
    wrong_clients,
)
from forager.core.tasks.partitions import Partitions, iid, natural
from forager.core.tasks.splits import generator, hold_out, share_between_owner_and_server
from forager.core.tasks.streams.arrivals import RoundClock
from forager.core.tasks.streams.sample_files import labels_in


def test_iid_of_array_partitions():
    assert (iid(TaskSpec(), np.zeros(5, int), 3)[1].tolist()) == [0, 2, 4, 5]


def test_natural_of_array_partitions():
    assert ([part.tolist() for part in natural(TaskSpec(), np.array([1, 0, 1]), 2)]) == [
        [1, 0, 2],
        [0, 1, 3],
    ]


def test_names_a_file_of_hugging_face():
    assert (
        [_names_a_file(name) for name in ("clinics.csv", "./data", "user/name", "user/name:config")]
    ) == [True, True, False, False]


def test_strip_of_newsgroups():
    assert (
        strip("From: a@b.c\nSubject: x\n\nIn article <1> b writes:\n> no\nYes.\n--\nA, B.C.")
    ) == "Yes."


def test_encoded_of_poems():
    assert (encoded("A bee!").tolist()) == [2, 1, 3, 6, 6, 1]


def test_input_range_of_raw():
    low, high = input_range(np.array([[0, 255], [51, 255]], dtype=np.uint8))
    assert (low.tolist(), high.round(3).tolist()) == ([0.0, 1.0], [0.20000000298023224, 1.0])


def test_model_inputs_of_raw():
    images = model_inputs(np.full((5, 28, 28), 255, dtype=np.uint8))
    assert (images.shape, float(images.max())) == ((5, 1, 28, 28), 1.0)


def test_kind_of_of_raw():
    assert (kind_of(np.array([0, 1])), kind_of(np.array([0.5, 1.0]))) == (
        "classification",
        "regression",
    )


def test_cache_folder_of_storage():
    assert (cache_folder("somewhere").name) == "somewhere"


def test_one_line_of_errors():
    assert (one_line(OSError("no network\nat all"))) == "no network at all"


def test_advice_of_errors():
    assert (
        advice(ModuleNotFoundError("No module named 'sklearn'", name="sklearn.cluster"))
    ) == "the package sklearn is missing: pip install 'forager-fl[datasets]'"


def test_group_of_of_groups():
    assert ([group_of(client, 3) for client in range(5)]) == [0, 1, 2, 0, 1]


def test_rotation_of_groups():
    x, _ = rotation(np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([0]), 1, 4, 10)
    assert (x.tolist()) == [[[2.0, 4.0], [1.0, 3.0]]]


def test_label_permutation_of_groups():
    assert (label_permutation(np.zeros((2, 1)), np.array([0, 9]), 1, 2, 10)[1].tolist()) == [5, 4]


def test_affine_shift_of_groups():
    x = np.ones((2, 3), np.float32)
    y = np.zeros(2, np.int64)
    (one, same), (other, _) = (affine_shift(x, y, group, 2, 1) for group in (0, 1))
    assert same is y
    assert not (one == x).any()
    assert not (one == other).any()


def test_label_of_metric_text():
    assert (
        [label(Metric(name)) for name in ("accuracy", "mae", "macro-f1", "balanced-accuracy")]
    ) == ["accuracy", "MAE", "macro F1", "balanced accuracy"]


def test_title_of_metric_text():
    assert (title(Metric("balanced-accuracy")), title(Metric("mae"))) == (
        "Balanced accuracy",
        "MAE",
    )


def test_of_classes_of_metrics():
    assert ([metric.name for metric in of_classes(2)]) == ["recall-0", "recall-1"]


def test_gain_of_metrics():
    assert (Metric("mae", higher_is_better=False).gain(2.0, over=3.0)) == 1.0


def test_best_of_metrics():
    assert (Metric("perplexity", higher_is_better=False).best([9.0, 4.0, 6.0])) == 4.0


def test_classes_after_noise_of_init():
    assert (classes_after_noise(TaskSpec(noise="open-set"), 10)) == 5


def test_draw_affected_of_noisy():
    assert (int(draw_affected(10, 0.45, np.random.default_rng(0)).sum())) == 4


def test_kept_classes_of_open_set():
    assert (kept_classes(10), kept_classes(5), kept_classes(10, 0.6), kept_classes(10, 1.0)) == (
        5,
        3,
        4,
        1,
    )


def test_wrong_clients_of_random_labels():
    assert (wrong_clients(0.1, 20) < wrong_clients(0.2, 20), len(wrong_clients(0.2, 20))) == (
        True,
        4,
    )


def test_random_labels_of_random_labels():
    data = Noisy(np.zeros((4, 1)), np.zeros(4, int), np.zeros(4, int), np.ones(4, bool))
    noisy = random_labels(data, 5, client=3)
    assert bool((noisy.clean == (noisy.y == 0)).all())


def test_clouds_of_textures():
    texture = clouds(1, 8, 8, np.random.default_rng(0))
    assert (texture.shape, float(texture.min()), float(texture.max())) == ((1, 8, 8), 0.0, 1.0)


def test_partitions_of_partitions():
    parts = Partitions(order=np.array([4, 0, 2]), offsets=np.array([0, 1, 1, 3]))
    assert (len(parts), parts[0].tolist(), parts[1].tolist(), parts[2].tolist()) == (
        3,
        [4],
        [],
        [0, 2],
    )


def test_generator_of_splits():
    a, b = generator(0, "noise", 3), generator(0, "noise", 3)
    assert bool(a.random() == b.random())
    assert not (bool(generator(0, "noise", 4).random() == generator(0, "test", 4).random()))


def test_hold_out_of_splits():
    kept, held = hold_out(5, 0.4, np.random.default_rng(0))
    assert (len(kept), len(held), sorted([*kept.tolist(), *held.tolist()])) == (
        3,
        2,
        [0, 1, 2, 3, 4],
    )


def test_share_between_owner_and_server_of_splits():
    rng = np.random.default_rng(0)
    assert (
        [len(part) for part in share_between_owner_and_server(np.array([5, 5, 5, 7]), rng)]
    ) == [3, 1]


def test_roundclock_of_arrivals():
    clock = RoundClock()
    assert (clock.advance(5), clock.advance(8), clock.advance(2), clock.now) == (5, 3, 2, 10)


def test_labels_in_of_sample_files():
    assert (labels_in(Path("incoming/cat/1.png"), {"dog": 0, "cat": 1}, (1, 8, 8)).tolist()) == [1]


OWN = """
import numpy as np

def gone():
    return open("gone.csv")

def empty():
    return {"x_train": np.zeros((0, 2)), "y_train": np.zeros(0, int), "x_test": np.zeros((9, 2)),
            "y_test": np.arange(9) % 2}

def lacks():
    return {"x_train": np.zeros((4, 2)), "y_train": np.zeros(4, int), "x_test": np.zeros((9, 2))}
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone", r"own_pool:gone\(\) failed: FileNotFoundError: .*'gone.csv'; line 5 of own_pool"),
        ("empty", "'own_pool:empty': x_train holds no samples"),
        ("lacks", "returned a dict that lacks y_test: its keys are"),
    ],
)
def test_what_the_users_data_lack_is_said(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_pool.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskError, match=told):
        load_task(TaskSpec(task=f"own_pool:{name}")).client_data(0, 2)


def test_the_users_code_runs_in_the_folder_of_forager_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower starts its processes elsewhere, and a relative path has to work there, too."""
    (tmp_path / "table.csv").write_text("1,2")
    (tmp_path / "own_table.py").write_text("def load(): return open('table.csv').read()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir("/")
    monkeypatch.setenv(STARTED_IN, str(tmp_path))
    assert imported("task", "own_table:load")() == "1,2"


def test_another_machine_of_a_cluster_need_not_have_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STARTED_IN, str(tmp_path / "elsewhere"))
    assert imported("task", "json:loads")("[1]") == [1]
    assert Path.cwd() == tmp_path
