"""What is installed is what was locked: every package by version and hash, from any index."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLED = ("device", "torch", "server", "dev")
ALL = (*INSTALLED, "torch-cpu", "audit")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(lock: str) -> dict[str, tuple[str, str]]:
    """Return version and text of each package of a lock file."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text()
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    found = [re.match(r"([A-Za-z0-9_.-]+)==(\S+)", block) for block in blocks]
    assert all(found), lock
    return {plain(m[1]): (m[2], b) for m, b in zip(found, blocks, strict=True) if m}


def names(requirements: list[str]) -> set[str]:
    found = {plain(re.split(r"[\[<>=!; ]", line, maxsplit=1)[0]) for line in requirements}
    return found - {"forager-fl"}


@pytest.mark.parametrize("lock", ALL)
def test_every_package_has_a_version_and_hashes_and_no_index_is_named(lock: str) -> None:
    for name, (version, block) in packages(lock).items():
        assert version, name
        lines = block.strip().splitlines()[1:]
        assert lines, name
        for line in lines:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), (name, line)
    text = (ROOT / "locks" / f"{lock}.txt").read_text()
    assert not re.search(
        r"://|--(extra-)?index|--find-links|--trusted-host|\w+\.(org|com|io)\b", text
    )


def test_all_that_the_project_asks_for_is_locked_once_and_as_it_was_tested() -> None:
    locked = [(name, lock) for lock in INSTALLED for name in packages(lock)]
    assert len(dict(locked)) == len(locked)
    extras = PROJECT["project"]["optional-dependencies"]
    used = ("server", "datasets", "backbone", "prometheus", "simulation", "tensorboard", "dev")
    assert names(extras["vision"]) <= set(packages("device"))  # of the app; no dependency of it
    asked = names(PROJECT["project"]["dependencies"]).union(*(names(extras[e]) for e in used))
    assert asked <= set(dict(locked))
    device = {*packages("device"), "torch"}
    assert names(PROJECT["project"]["dependencies"]) <= device
    image = names([each for extra in used[:4] for each in extras[extra]])
    assert image <= device | set(packages("server"))
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    tested = {plain(name): version for name, version in pins.items()}
    for lock in ALL:
        for name, (version, _) in packages(lock).items():
            assert version.removesuffix("+cpu") == tested.get(name, version), name


def test_the_build_backend_is_the_locked_one() -> None:
    (backend,) = PROJECT["build-system"]["requires"]
    assert backend == f"hatchling=={packages('dev')['hatchling'][0]}"


def test_hashes_are_required_wherever_packages_are_installed() -> None:
    makefile, dockerfile = (ROOT / "Makefile").read_text(), (ROOT / "docker/Dockerfile").read_text()
    assert "LOCKED := device server dev\n" in makefile
    assert re.search(r"^INSTALL := .*--require-hashes --no-deps$", makefile, re.MULTILINE)
    assert "--require-hashes --no-deps -r locks/audit.txt" in makefile
    assert "--require-hashes -r locks/device.txt -r locks/server.txt" in dockerfile
    assert "${TORCH:--r locks/torch-cpu.txt}" in dockerfile
