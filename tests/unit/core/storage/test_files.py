from contextlib import suppress
from pathlib import Path

from forager.core.storage.files import remove_leftovers, replacing, set_aside


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with replacing(path) as file:
        file.write(b"all of it")
    with suppress(RuntimeError), replacing(path) as file:
        file.write(b"half of")
        raise RuntimeError
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"all of it"]


def test_what_a_crash_left_unfinished_is_removed(tmp_path: Path) -> None:
    for name in (".state.0123abcd.tmp", ".other.0123abcd.tmp"):
        (tmp_path / name).write_bytes(b"half of")
    remove_leftovers(tmp_path / "state")
    assert [each.name for each in tmp_path.iterdir()] == [".other.0123abcd.tmp"]


def test_every_useless_file_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "state"
    moved = []
    for _ in range(2):
        path.write_bytes(b"garbage")
        moved.append(set_aside(path, "damaged").name)
    assert moved == ["state.damaged-1", "state.damaged-2"]
    assert not path.exists()
