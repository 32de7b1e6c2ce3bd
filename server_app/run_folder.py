"""The folder that a run leaves behind: its config, its events, its tables, its model."""

import io
import json
import logging
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ..core.storage.files import write_atomically

Event = dict[str, Any]

SUPPORTS = "supports"  # the kind of file that collected supports are

logger = logging.getLogger(__name__)


_PLAIN = frozenset({type(None), bool, int, str})
_TO_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_LEASE = ".lease"  # the number of the process that writes here: the highest


class LeaseLost(BaseException):
    """Another process writes here now; no Exception, as no handler of faults may swallow it."""


class RunFolderError(ValueError):
    """A run folder cannot be made, written or found."""


class RunFolder:
    """One run's folder, `<output-dir>/<run>/`; nothing is read or written by naming it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._warned = False
        self._generation = 0  # of the lease, once it was taken
        self._lease_file: tuple[int, int] | None = None  # that said so when it was last read
        self.config_path = self.path / "config.json"  # the resolved run config
        self.events_path = self.path / "events.jsonl"  # the log: one event per line
        # The account of privacy, which outlives what is resumed or rolled back
        self.releases_path = self.path / "releases.jsonl"
        self.rounds_path = self.path / "rounds.csv"  # the table with one row per round
        self.report_path = self.path / "report.html"
        self.model_path = self.path / "model.safetensors"  # the final one
        # What clients sent of the indices that matter to them
        self.supports_path = self.path / "supports.safetensors"
        self.checkpoints = self.path / "checkpoints"
        # As text, because every event needs them: to join paths takes longer than to ask the system
        self._lease_name, self._events_name = str(self.path / _LEASE), str(self.events_path)

    def best_path(self, cohort: str = "") -> Path:
        """Return where the best model is, or that of a cohort at the same round."""
        return self.path / (f"best-{cohort}.safetensors" if cohort else "best.safetensors")

    @classmethod
    def create(cls, output_dir: str | Path, name: str = "") -> "RunFolder":
        """Make the folder of a new run, by default named by the time and a random suffix."""
        if name != Path(name).name or name == ".." or "\0" in name:
            raise RunFolderError(f"run-name = {name!r} is not allowed: use a name without slashes")
        path = Path(output_dir) / (name or new_name())
        while not name and os.path.lexists(path):
            path = path.with_name(new_name())  # many runs in one second
        if os.path.lexists(path):
            raise RunFolderError(
                f"output-dir = {str(output_dir)!r} already holds a run {path.name!r}: "
                f"choose another run-name, or continue that run: forager resume {path}"
            )
        return cls(path)._prepare(output_dir)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Open the folder of an earlier run, to continue it."""
        if not Path(path).is_dir():
            raise RunFolderError(
                f"path = {str(path)!r} is not a run folder: the folder of an earlier run is needed"
            )
        return cls(path)._prepare(Path(path).parent)

    def _prepare(self, output_dir: str | Path) -> "RunFolder":
        """Make the folders and prove, by writing, that files can be put there."""
        probe = self.path / f".probe-{secrets.token_hex(4)}"
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            try:
                probe.write_bytes(b"probe")
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"output-dir = {str(output_dir)!r} cannot be written: {error.strerror or error} "
                f"({self.path}); a folder that this process may write is needed"
            ) from error
        return self

    def take_lease(self) -> None:
        """Become the one that writes here: an earlier writer notices, and stops."""
        self._generation = self._lease() + 1
        self.write_text(_LEASE, f"{self._generation}\n")

    def check_lease(self) -> None:
        """Raise :class:`LeaseLost` if another process has resumed this run.

        The file is replaced, never changed: as long as it is the same one, it is not read again.
        """
        if not self._generation:
            return
        file = self._which_lease_file()
        if file is not None and file == self._lease_file:
            return
        if self._lease() != self._generation:
            raise LeaseLost(f"{self.path}: another process has resumed this run")
        self._lease_file = file

    def _which_lease_file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._lease_name)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _lease(self) -> int:
        try:
            return int((self.path / _LEASE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the folder whole or not at all, and return its path."""
        target = self.path / name
        write_atomically(target, text.encode("utf-8", errors="replace"))
        return target

    def write_config(self, config: Mapping[str, Any]) -> Path:
        """Write the resolved run config as `config.json`."""
        return self.write_text("config.json", json.dumps(to_plain(config), indent=2) + "\n")

    def read_config(self) -> dict[str, Any]:
        """Return what `config.json` holds, or nothing if the run died before writing it."""
        try:
            config = json.loads(self.config_path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{self.config_path} is not a JSON file: {error}") from error
        overrides = config.get("overrides", {}) if isinstance(config, dict) else None
        if not isinstance(overrides, dict) or not is_flat({**config, **overrides, "overrides": ""}):
            raise RunFolderError(f"{self.config_path} is not the config of a run")
        return dict(config)

    def append_event(self, event: Mapping[str, Any]) -> bool:
        """Add one line to `events.jsonl`; False, and one warning, if it could not be written."""
        self.check_lease()
        try:
            with open(self._events_name, "a+b", buffering=0) as file:
                _mend_torn_tail(file)
                _write_all(file, _line(event))
        except OSError as error:
            if not self._warned:
                logger.warning("%s: events are being lost: %s", self.events_path, error)
                self._warned = True
            return False
        return True

    def read_events(self) -> list[Event]:
        """Return all events in order; a last line that was torn by a crash is left out."""
        if not self.events_path.exists():
            return []
        lines = self.events_path.read_bytes().split(b"\n")
        events = []
        for number, line in enumerate(lines, start=1):
            event = parsed_event(line)
            if event is not None:
                events.append(event)
            elif line.strip() and number < len(lines):
                logger.warning("%s: line %d is not an event, left out", self.events_path, number)
        return events

    def truncate_after(self, round_number: int) -> None:
        """Forget what was logged after a round: the log of a resumed run reads as one."""
        kept: list[Event] = []
        beyond = False
        for event in self.read_events():
            number = event.get("round")
            later = isinstance(number, int) and number > round_number
            beyond = beyond or later
            stray = number is None and beyond and event.get("event") != "run-started"
            if not later and not stray and event.get("event") != "run-finished":
                kept.append(event)
        self.write_text("events.jsonl", b"".join(map(_line, kept)).decode())


def is_flat(config: Mapping[str, Any]) -> bool:
    """Return whether all values are numbers or texts, as in a run config."""
    return all(type(value) in _PLAIN or type(value) is float for value in config.values())


def to_plain(value: Any) -> Any:
    """Turn a value into what JSON can hold: arrays become lists, NaN and infinity become null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item) for item in value), key=str)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        # Lists of a thousand names are common.
        return [item if type(item) in _PLAIN else to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch, scalars and arrays
        return to_plain(value.tolist())
    return str(value)


def new_name() -> str:
    """Name a run by the time in UTC; the suffix keeps runs of one second apart."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(2)}"


def _line(event: Mapping[str, Any]) -> bytes:
    try:
        return _TO_JSON.encode(event).encode() + b"\n"  # most events are plain already
    except (TypeError, ValueError):
        return _TO_JSON.encode(to_plain(event)).encode() + b"\n"


def parsed_event(line: bytes) -> Event | None:
    """Return the event of a line, or None if the line holds none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _mend_torn_tail(file: BinaryIO | io.FileIO) -> None:
    """Make the file end with a whole line, so that the next event does not join a torn one."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    content = file.read() or b""
    start = content.rfind(b"\n") + 1
    if parsed_event(content[start:]) is None:
        file.truncate(start)
    else:
        _write_all(file, b"\n")


def _write_all(file: BinaryIO | io.FileIO, data: bytes) -> None:
    """Write all of it: a raw write to a nearly full disk may take only a part."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]
