"""Flower's command line, for programs: submit a run, read its log, learn how it ended.

Its exit codes do not say whether a run succeeded, so everything here goes by its JSON answers.
"""

import json
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from ...core.config import Scalar
from .env import PROGRAMS

_NAME = "forager"  # of the connection in Flower's config file
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREAMBLE = re.compile(r"(Using SuperLink: |Displaying information for run ID ).*\n+")


class FlowerError(RuntimeError):
    """Flower refused or could not do what it was asked."""


class RunStatus(NamedTuple):
    """Where a run stands, such as ``finished:completed``, and what Flower says about it."""

    state: str
    details: str

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state.startswith("finished")

    @property
    def succeeded(self) -> bool:
        """Whether the ServerApp came to its end."""
        return self.state == "finished:completed"


class FlowerCli:
    """``flwr`` for one SuperLink."""

    def __init__(self, port: int, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._home = Path(env["FLWR_HOME"])
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "config.toml").write_text(
            f'[superlink.{_NAME}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )

    def submit(self, app: Path, run_config: Mapping[str, Scalar], federation: str = "") -> str:
        """Start a run of an app; return its id."""
        file = self._home / "run-config.toml"  # a file needs no quoting on the command line
        lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in run_config.items()]
        file.write_text("".join(lines), encoding="utf-8")
        options = ["--run-config", str(file)]
        if federation:
            options += ["--federation-config", federation]
        return str(self._ask("run", str(app), _NAME, *options)["run-id"])

    def status(self, run_id: str) -> RunStatus:
        """Return where a run stands."""
        run = self._ask("list", _NAME, "--run-id", run_id)["runs"][0]
        return RunStatus(run["status"], run["status-details"])

    def log(self, run_id: str) -> Generator[str, None, None]:
        """Yield the lines of a run's log, without colours, until the run ends."""
        command = [str(PROGRAMS / "flwr"), "log", run_id, _NAME, "--stream"]
        process = subprocess.Popen(
            command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        with closing(process.stdout) as lines:
            try:
                for line in lines:
                    yield _COLOUR.sub("", line.rstrip("\n"))
            finally:
                process.kill()
                process.wait()

    def _ask(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(PROGRAMS / "flwr"), *arguments, "--format", "json"],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise FlowerError(_plain(done.stdout + done.stderr)) from None
        if not answer.get("success"):
            raise FlowerError(_plain(str(answer.get("error-message", done.stdout))))
        return answer


def _plain(text: str) -> str:
    r"""Return what Flower said, without colours and without the name of the SuperLink.

    >>> _plain("Using SuperLink: here (127.0.0.1:1)\n\n\x1b[31mno such app\x1b[0m")
    'no such app'
    """
    return _PREAMBLE.sub("", _COLOUR.sub("", text)).strip()
