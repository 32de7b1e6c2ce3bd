"""The wheel in an environment of its own: the app of docs/library.md by a real `flwr run`.

The environment has the wheel installed, without this checkout, and the packages of the environment
that runs the test. `make test-wheel` runs this; it takes some minutes.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation import START_SECONDS
from forager.tools.flower.processes import Program, answers, free_port
from test_library_page import write_app

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    venv.create(folder / "env", symlinks=True)
    bin_, (wheel,) = folder / "env" / "bin", folder.glob("forager_fl-*.whl")
    site = Path(
        run(
            [str(bin_ / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        ).strip()
    )
    run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)])
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            "forager" not in package.name
            and package.suffix != ".pth"
            and not (site / package.name).exists()
        ):
            (site / package.name).symlink_to(package)
    for script in Path(sys.executable).parent.glob("fl*w*r*"):
        text = script.read_text().split("\n", 1)[1]
        (bin_ / script.name).write_text(f"#!{bin_ / 'python'}\n{text}")
        (bin_ / script.name).chmod(0o755)
    return bin_


@pytest.fixture(scope="module")
def environment(
    programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Start the SuperLink that `flwr run` would start, and would wait for 15 s; return its own."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    ray = tempfile.mkdtemp(prefix="ray-")  # with a short path: sockets lie below it
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("FLWR", "PYTHON"))
    }
    env |= {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "NO_PROXY": "127.0.0.1,localhost",
        "RAY_TMPDIR": ray,  # a Ray of its own, whatever else runs on this machine
    }
    command = [str(programs / "flower-superlink"), "--insecure", "--simulation"]
    command += ["--host=127.0.0.1", f"--port={port}"]
    with Program(command, env=env, cwd=home, log=home / "superlink.log") as superlink:
        superlink.wait_for(lambda: answers(port), START_SECONDS)
        yield env


def test_it_is_imported_from_where_it_was_installed(programs: Path) -> None:
    code = "import forager; print(forager.__file__, forager.strategy.__module__)"
    told = run([str(programs / "python"), "-c", code], cwd="/")
    assert str(programs.parent) in told
    assert "forager.strategies.library" in told


def test_the_torch_that_is_there_stays(programs: Path, tmp_path: Path) -> None:
    """An environment that has the oldest torch allowed, and all else, is told what pip would do."""
    venv.create(tmp_path, symlinks=True)
    python = str(tmp_path / "bin" / "python")
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site, oldest = Path(run(where).strip()), "2.6.0"
    for found in Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
        if not found.name.startswith(("torch-", "forager")) and not (site / found.name).exists():
            (site / found.name).symlink_to(found)
    metadata = site / f"torch-{oldest}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {oldest}\n")
    (wheel,) = programs.parents[1].glob("forager_fl-*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    pip += ["install", "--dry-run", "--no-index"]
    for extras in ("", "[server]"):
        told = run([*pip, f"{wheel}{extras}"])
        (would,) = re.findall(r"Would install (.*)", told)
        assert [name.rpartition("-")[0] for name in would.split()] == ["forager-fl"]
    images = subprocess.run([*pip, f"{wheel}[vision]"], capture_output=True, text=True, check=False)
    # It would be installed, or is missed where pip finds none: torchvision needs its own.
    assert re.search(r"torch(==|-)2\.(?!6\.0)", images.stdout + images.stderr)


@pytest.mark.parametrize("strategy", ["cosage", "split-test", "gcfl", "ode", "ios", "top-k"])
def test_somebodys_app_learns(
    programs: Path, environment: dict[str, str], tmp_path: Path, strategy: str
) -> None:
    write_app(tmp_path)
    told = run(
        [
            *(str(programs / "flwr"), "run", ".", "--stream"),
            *("--federation-config", "num-supernodes=6", "-c", f"strategy='{strategy}'"),
        ],
        cwd=tmp_path,
        env=environment,
    )
    accuracy = [float(text) for text in re.findall(r"round \d: accuracy (\S+)", told)]
    assert len(accuracy) == 5, told
    assert accuracy[-1] > accuracy[0] + 0.1
    assert "no forager.client_mod" not in told
