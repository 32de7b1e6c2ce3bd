"""Settings that keep Flower's programs inside this project.

Flower by default keeps its state in the home directory, shares one local SuperLink among all
projects of a machine, and installs an app's dependencies again for every run. ``python -m
forager.tools.flower.env`` writes these settings into the virtual environment that runs it, as
defaults, so that ``.venv/bin/flwr run .`` has them whether the environment was activated or not.
"""

import os
import shutil
import sys
import sysconfig
import tomllib
import zlib
from importlib.util import find_spec
from pathlib import Path

from ...core.config import Scalar, default_config
from ...core.config.run_config import flattened

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent  # where flwr, flower-superlink, ... are
FLOWER_HOME = PROJECT / ".flwr-home"
_OUR_KEYS = {"task", "strategy"}  # an app whose run config has these is one of Forager's

PRIVATE = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

# The simulated clients are the work of a run. Ray would let every other program go first, so that
# on a busy machine they do not get to answer at all.
FOREGROUND = {"RAY_worker_niceness": "0"}


def run_config(folder: Path) -> dict[str, Scalar] | None:
    """Return the flat run config of an app of Forager's; None if the folder holds none."""
    try:
        app = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]
        flat: dict[str, Scalar] = flattened(app["app"]["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return flat if flat.keys() >= _OUR_KEYS else None


def app_folder() -> Path | None:
    """Return the folder that Flower packs: the current one if it holds the app, else the checkout.

    None where the package was installed from a wheel: the local engine needs no such folder.
    """
    folders = (Path.cwd(), PROJECT)
    return next((folder for folder in folders if run_config(folder) is not None), None)


def app_settings() -> dict[str, Scalar]:
    """Return what the app in the current folder sets otherwise than by default."""
    usual = default_config()
    return {k: v for k, v in (run_config(Path.cwd()) or {}).items() if usual.get(k) != v}


def superlink_name(home: Path | None = None) -> str:
    """Return the name of the deployed SuperLink in Flower's config file, if there is just one."""
    home = home or Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    try:
        known = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))["superlink"]
    except (OSError, ValueError, KeyError):
        return "SUPERLINK"
    deployed = [name for name, own in known.items() if name != "supergrid" and "address" in own]
    return deployed[0] if len(deployed) == 1 else "SUPERLINK"


def command_name() -> str:
    """Return how the user of this terminal types the command ``forager``."""
    if sys.prefix in (sys.base_prefix, os.environ.get("VIRTUAL_ENV")):
        return "forager"
    program, here = PROGRAMS / "forager", Path.cwd()
    if not program.exists():
        return f"{sys.executable} -m forager.tools.cli"
    if shutil.which("forager") == str(program):
        return "forager"
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def defaults(project: Path) -> dict[str, str]:
    """Return the settings for Flower's command line in a project.

    >>> ports = [defaults(Path(p))["FLWR_LOCAL_CONTROL_API_PORT"] for p in ("/me", "/me", "/you")]
    >>> ports[0] == ports[1] != ports[2]
    True
    """
    # Below the range from which systems give out ports by themselves
    port = 20000 + 2 * (zlib.crc32(str(project).encode()) % 6000)
    return {
        **PRIVATE,
        **FOREGROUND,
        "FLWR_HOME": str(project / ".flwr-home"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_LOCAL_CONTROL_API_PORT": str(port + 1),
    }


def environment(home: Path) -> dict[str, str]:
    """Return the environment of programs of Flower that keep their state in a folder of their own.

    They talk to each other on this machine, never by a proxy, and start a Ray of their own. They
    share its cores: threads that wait for each other must sleep, because spinning ones slow
    each other down a hundred times.
    """
    inherited = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1,localhost"]))
    return {
        **FOREGROUND,
        **inherited,
        **PRIVATE,
        "FLWR_HOME": str(home),
        "OMP_WAIT_POLICY": "PASSIVE",
        "NO_PROXY": direct,
        "no_proxy": direct,
        "PATH": os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
    }


def startup_line(project: Path, programs: Path) -> str:
    """Return the line of a ``.pth`` file, which Python runs whenever it starts.

    Flower starts its programs by name, so their folder has to be on the search path too.
    """
    return (
        f"import os; e = os.environ; e.update({{**{defaults(project)!r}, **e}}); "
        f"p = {str(programs)!r}; q = e.get('PATH', ''); "
        "p in q.split(os.pathsep) or e.update(PATH=p + os.pathsep + q)\n"
    )


def main() -> None:
    """Write the defaults into this virtual environment."""
    if sys.prefix == sys.base_prefix:
        sys.exit("forager.tools.flower.env: not a virtual environment; use .venv/bin/python")
    target = Path(sysconfig.get_path("purelib")) / "forager-flower-env.pth"
    target.write_text(startup_line(PROJECT, PROGRAMS), encoding="utf-8")
    if find_spec("ray") is None:  # Flower ends without a word of ours, and with exit code 0
        print("Ray is not installed: `flwr run .` needs it (pip install 'forager-fl[simulation]')")


if __name__ == "__main__":
    main()
