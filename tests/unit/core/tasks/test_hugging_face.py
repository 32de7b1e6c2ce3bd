"""Tables, Arrow folders and images, made on the spot."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from forager.core.config.overrides import parse_overrides
from forager.core.tasks import TaskError, TaskSpec, load_task
from PIL import Image

ROWS = 60


def table(**more: Any) -> Dataset:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}
    return Dataset.from_dict({**columns, "label": np.arange(ROWS) % 3, **more})


def spec(place: Path, **more: Any) -> TaskSpec:
    return TaskSpec(task=f"hf:{place}", partition="iid", cache_dir=str(place.parent), **more)


def write(kind: str, folder: Path) -> Path:
    place = folder / f"data.{kind}"
    if kind == "csv":
        table().to_csv(str(place))
    elif kind == "parquet":
        table().to_parquet(str(place))
    elif kind == "json":
        table().to_json(str(place))
    elif kind == "arrow":
        table().save_to_disk(str(place))
    elif kind == "splits":
        halves = table().train_test_split(test_size=0.25, seed=0)
        DatasetDict(halves).save_to_disk(str(place))
    return place


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "arrow", "splits"])
def test_all_kinds_of_file_give_the_same_task(kind: str, tmp_path: Path) -> None:
    task = load_task(spec(write(kind, tmp_path)))
    assert (task.input_shape, task.num_classes, task.problem.kind) == ((2,), 3, "classification")
    sizes = [len(task.client_data(i, 4).train) for i in range(4)]
    assert sum(sizes) == {"splits": 45}.get(kind, 48)
    server = task.server_data()
    assert len(server.test) + len(server.validation) == ROWS - sum(sizes)


def test_images_in_one_folder_per_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 255, size=(6, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
    task = load_task(spec(tmp_path / "pets"))
    assert (task.input_shape, task.num_classes) == ((3, 6, 5), 2)
    assert float(task.client_data(0, 2).train.x.max()) <= 1


def test_columns_by_name_users_texts_and_numbers(tmp_path: Path) -> None:
    users = [f"site-{i % 5}" for i in range(ROWS)]
    data = table(user=users, price=np.linspace(0, 9, ROWS), word=["yes", "no", "no"] * 20)
    data.to_parquet(str(tmp_path / "mine.parquet"))
    place = tmp_path / "mine.parquet"
    columns = {"input_columns": "a, b", "target_column": "price", "user_column": "user"}
    task = load_task(
        TaskSpec(task=f"hf:{place}", partition="natural", cache_dir=str(tmp_path), **columns)
    )
    assert task.problem.kind == "regression"
    assert task.input_shape == (2,)
    assert task.client_data(4, 5).train.y.shape[1:] == (1,)
    words = load_task(spec(place, input_columns="a", target_column="word"))
    assert words.num_classes == 2


def test_token_ids_stay_whole_numbers(tmp_path: Path) -> None:
    tokens = np.arange(ROWS * 4).reshape(ROWS, 4) % 7
    Dataset.from_dict({"ids": tokens.tolist(), "label": np.arange(ROWS) % 2}).save_to_disk(
        str(tmp_path / "text")
    )
    task = load_task(spec(tmp_path / "text", tokens=True))
    x = task.client_data(0, 2).train.x
    assert str(x.dtype) == "torch.int64"
    assert set(x.flatten().tolist()) == set(range(7))
    numbers = load_task(spec(tmp_path / "text"))
    assert str(numbers.client_data(0, 2).train.x.dtype) == "torch.float32"


def test_a_device_reads_its_own_and_sees_that_it_changed(tmp_path: Path) -> None:
    place = tmp_path / "own.csv"
    table().to_csv(str(place))
    task = load_task(TaskSpec(task="npz", num_classes=3, cache_dir=str(tmp_path)))
    assert len(task.device_data(str(place)).train) == ROWS
    Dataset.from_dict(table()[:20]).to_csv(str(place))
    os.utime(place, ns=(1, 1))
    assert len(task.device_data(str(place)).train) == 20
    folder = tmp_path / "arrow"
    table().save_to_disk(str(folder))
    assert len(task.device_data(str(folder)).train) == ROWS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"target_column": "lable"}, "data.target-column = 'lable' .* a, b, label"),
        ({"input_columns": "a,c"}, "data.input-columns = 'a,c' .* some of a, b"),
        ({"user_column": "who"}, "data.user-column = 'who' .* one of a, b, label"),
    ],
)
def test_columns_that_are_not_there(changes: dict[str, str], expected: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=expected):
        load_task(spec(write("csv", tmp_path), **changes)).server_data()


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text("a,label\n1,2\n")
    (tmp_path / "mixed" / "b.txt").write_text("hello")
    with pytest.raises(TaskError, match=r"mixed: holds .txt, csv; expected an .npz file, an Arrow"):
        load_task(spec(tmp_path / "mixed")).server_data()
    (tmp_path / "torn.parquet").write_bytes(b"not a table")
    with pytest.raises(TaskError, match=r"torn.parquet: it could not be read"):
        load_task(spec(tmp_path / "torn.parquet")).server_data()
    ragged = Dataset.from_dict({"x": [[1], [1, 2]], "label": [0, 1]})
    ragged.save_to_disk(str(tmp_path / "ragged"))
    with pytest.raises(TaskError, match="column 'x' holds samples of different shapes"):
        load_task(spec(tmp_path / "ragged")).server_data()


def test_clients_of_a_table_hold_out_what_the_run_says(tmp_path: Path) -> None:
    """The fifth that the server holds out is its own; a test split is shared with the owners."""
    users = [f"site-{i % 5}" for i in range(ROWS)]
    table(user=users).to_csv(str(tmp_path / "mine.csv"))
    keys = {"partition": "natural", "user_column": "user", "cache_dir": str(tmp_path)}
    task = load_task(TaskSpec(task=f"hf:{tmp_path / 'mine.csv'}", client_test_share=0.5, **keys))
    held = [task.client_data(i, 5) for i in range(5)]
    for own in held:
        assert len(own.test) == (len(own.train) + len(own.test)) // 2
    server = task.server_data()
    everything = sum(len(own.train) + len(own.test) for own in held)
    assert everything + len(server.test) + len(server.validation) == ROWS
    assert task.client_names(5) == [f"site-{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b;label\n1;2;0\n", "use one of a;b;label; separate columns by commas"),
        ("a,b,label\n", "there are no rows in it"),
        ("", "there are no rows in it"),
        ("a,b,label\nx,2,0\ny,3,1\n", "column 'a': holds text, such as 'x'; inputs must be"),
        ("a,b,label\n0,2,0\n1,,1\n", "column 'b': row 2 is empty; fill it or remove the row"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(TaskError) as caught:
        load_task(TaskSpec(task=f"hf:{tmp_path / 'mine.csv'}")).server_data()
    assert expected in str(caught.value)


def test_texts_stand_for_the_same_classes_in_train_and_test(tmp_path: Path) -> None:
    """The held-out rows may lack a class."""
    rare = ["a"] * 1 + ["b"] * 30 + ["c"] * 29
    Dataset.from_dict(
        {"x": [{"a": 0.0, "b": 1.0, "c": 2.0}[w] for w in rare], "label": rare}
    ).to_csv(str(tmp_path / "words.csv"))
    task = load_task(spec(tmp_path / "words.csv"))
    for own in (task.server_data().test, task.client_data(0, 1).train):
        assert own.x[:, 0].tolist() == own.y.tolist()


def test_a_file_that_is_not_here_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("datasets.load_dataset", asked)
    monkeypatch.chdir(tmp_path)
    for name in ("clinics.csv", "data/of/clinics", "./clinics", "~/none.parquet"):
        with pytest.raises(
            TaskError, match=r"there is no such file in .*, where this runs; give its"
        ):
            load_task(TaskSpec(task=f"hf:{name}", cache_dir=str(tmp_path))).server_data()
    with pytest.raises(TaskError, match="the hub was asked"):
        load_task(TaskSpec(task="hf:user/name", cache_dir=str(tmp_path))).server_data()
    table().to_csv("clinics.csv")
    given = parse_overrides(["task='hf:clinics.csv' seed=1"])
    assert given == {"task": f"hf:{tmp_path / 'clinics.csv'}", "seed": 1}
    assert parse_overrides(["task='hf:user/name'"]) == {"task": "hf:user/name"}
