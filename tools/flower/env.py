"""Settings that keep Flower's programs inside this project.

Flower by default keeps its state in the home directory, shares one local SuperLink among all
projects of a machine, and installs an app's dependencies again for every run. ``python -m
forager.tools.flower.env`` writes these settings into the virtual environment that runs it, as
defaults, so that ``.venv/bin/flwr run .`` has them whether the environment was activated or not.
"""

import os
import sys
import sysconfig
import tomllib
import zlib
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent  # where flwr, flower-superlink, ... are
FLOWER_HOME = PROJECT / ".flwr-home"
_COMPONENT = 'serverapp = "forager.server:app"'  # what makes a folder this app's

PRIVATE = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

# The simulated clients are the work of a run. Ray would let every other program go first, so that
# on a busy machine they do not get to answer at all.
FOREGROUND = {"RAY_worker_niceness": "0"}


def app_folder(place: Path | None = None) -> Path | None:
    """Return the folder that Flower packs: the current one if it holds the app, else the checkout.

    None where the package was installed from a wheel: the local engine needs no such folder.

    >>> app_folder() == PROJECT
    True
    """
    for folder in (place or Path.cwd(), PROJECT):
        file = folder / "pyproject.toml"
        if file.is_file() and _COMPONENT in file.read_text(encoding="utf-8", errors="replace"):
            return folder
    return None


def superlink_name(home: Path = FLOWER_HOME) -> str:
    """Return the name of the deployed SuperLink in Flower's config file, if there is just one."""
    try:
        known = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))["superlink"]
    except (OSError, ValueError, KeyError):
        return "SUPERLINK"
    deployed = [name for name, own in known.items() if name != "supergrid" and "address" in own]
    return deployed[0] if len(deployed) == 1 else "SUPERLINK"


def command_name() -> str:
    """Return how the user of this terminal types the command ``forager``."""
    unactivated = sys.prefix not in (sys.base_prefix, os.environ.get("VIRTUAL_ENV"))
    if not unactivated:
        return "forager"
    program, here = PROGRAMS / "forager", Path.cwd()
    if not program.exists():
        return f"{sys.executable} -m forager.tools.cli"
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def local_ports(project: Path) -> tuple[int, int]:
    """Return the ports of a project's own local SuperLink, the same for every call.

    They lie below the range from which systems give out ports by themselves.

    >>> local_ports(Path("/home/me/forager")) == local_ports(Path("/home/me/forager"))
    True
    >>> local_ports(Path("/home/me/forager")) == local_ports(Path("/home/you/forager"))
    False
    """
    first = 20000 + 2 * (zlib.crc32(str(project).encode()) % 6000)
    return first, first + 1


def defaults(project: Path) -> dict[str, str]:
    """Return the settings for Flower's command line in a project."""
    http, control = local_ports(project)
    return {
        **PRIVATE,
        **FOREGROUND,
        "FLWR_HOME": str(project / ".flwr-home"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
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
