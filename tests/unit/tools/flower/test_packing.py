"""What Flower is given to pack."""

import subprocess
import zipfile
from pathlib import Path

from forager.tools.flower.env import PROGRAMS, PROJECT, environment
from forager.tools.flower.packing import copy_to_pack, own_code


def test_the_copy_has_what_flower_may_pack_and_nothing_else(tmp_path: Path) -> None:
    app = tmp_path / "my_app"
    wanted = ["pyproject.toml", ".gitignore", "LICENSE", "core/a.py", "mine.py", "own/deep/b.json"]
    others = [
        *("data.npz", "core/__pycache__/a.pyc", ".venv/lib/x.py", ".git/config.toml"),
        *("env3/pyvenv.cfg", "env3/lib/y.py", "runs/one/config.json", "site/a.md"),
    ]
    for name in [*wanted, *others]:
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(name)
    (app / "pyproject.toml").write_text("fab-include = [")
    (app / "linked.py").symlink_to(app / "mine.py")
    (app / "huge.json").write_bytes(bytes(11 * 1024 * 1024))
    copy = copy_to_pack(app, tmp_path / "app")
    found = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert found == set(wanted)
    assert (copy / "own/deep/b.json").read_text() == "own/deep/b.json"


def test_it_is_small_however_large_the_environment_is(tmp_path: Path) -> None:
    copy = copy_to_pack(PROJECT, tmp_path / "app")
    assert (copy / "server_app" / "app.py").read_bytes() == (
        PROJECT / "server_app" / "app.py"
    ).read_bytes()
    assert sum(path.is_file() for path in copy.rglob("*")) < 2000


def test_of_own_files_only_those_that_the_config_names_travel(tmp_path: Path) -> None:
    app = copy_to_pack(PROJECT, tmp_path / "checkout")
    for name in ("my_task.py", "my_secrets.py", "notes.md", "mine/model.py", "other/model.py"):
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text("x = 1\n")
    own = own_code({"task": "my_task:Task", "model": "mine.model:build"}, app)
    assert bundled(copy_to_pack(app, tmp_path / "named", own)) == {"my_task.py", "mine/model.py"}
    assert bundled(copy_to_pack(app, tmp_path / "plain")) == set()


def bundled(app: Path) -> set[str]:
    """Return the files that Flower packs, without those of the app itself."""
    env = environment(app.parent / "home")
    subprocess.run([PROGRAMS / "flwr", "build", "--app", app], cwd=app.parent, env=env, check=True)
    (file,) = app.parent.glob("*.fab")
    with zipfile.ZipFile(file) as bundle:
        names = set(bundle.namelist())
    file.unlink()
    assert {"pyproject.toml", "README.md", "LICENSE", "core/config/overrides.py"} <= names
    ours = {path.name for path in PROJECT.iterdir()} | {".info"}
    return {name for name in names if name.partition("/")[0] not in ours}
