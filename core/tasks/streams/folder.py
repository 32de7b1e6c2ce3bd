"""A folder that fills up with files, read as a stream."""

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..datasets.storage import UNREADABLE
from ..errors import one_line
from .arrivals import Arrivals, Floats, LabelRates, RoundClock, content_keys, without_unusable
from .sample_files import KINDS, AfterReading, labels_in, samples_in

_log = logging.getLogger("forager")

_ROUND = 60.0, 3600.0  # assumed seconds per round: at least, at most
_VANISHED = 100_000  # files that are gone and still remembered, as a disk may only be unmounted


class _File(NamedTuple):
    """A file that may hold samples."""

    modified: int
    path: Path
    mark: int


class FolderStream:
    """Samples in the files of a folder, in the order in which they were written.

    ``.npz`` files hold arrays ``x`` and ``y``; ``.npy`` files and images lie in a sub-folder for
    their class, named by its number or one of the given names. A file is read once, again when it
    is replaced, or when it could not be read and has changed. Keys are digests of content: a copy
    brings nothing new. Of files that are older than the rounds that passed, only what falls into
    that many rounds counts for the velocity of labels. A contact ends after ``limit`` samples and
    leaves files alone that changed within ``settle`` seconds.
    """

    def __init__(
        self,
        folder: Path,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        classes: Sequence[str] = (),
        limit: int = 4096,
        settle: float = 2.0,
        after: AfterReading | None = None,
    ) -> None:
        self.folder, self.input_shape, self.num_classes = folder, input_shape, num_classes
        names = classes or [str(number) for number in range(num_classes)]
        self._numbers = {name: number for number, name in enumerate(names)}
        self.limit, self.settle = limit, settle
        self._clock, self._rates = RoundClock(), LabelRates()
        self.after = AfterReading() if after is None else after
        self._done: set[int] = set()  # marks of the files that were read or cannot be
        self._refused: set[int] = set()  # and of those that cannot be
        self._contact = 0.0  # when files were read last, in seconds since 1970
        self._surveyed: LabelRates | None = None

    def arrivals(self, until_round: int) -> Arrivals:
        """Give what arrived since the last call."""
        rounds = self._clock.advance(until_round)
        inputs = [np.zeros((0, *self.input_shape), dtype=np.float32)]
        labels = [np.zeros(0, dtype=np.int64)]
        times: list[int] = []
        count = 0
        for file in self._new_files():
            if count >= self.limit:
                break
            self._done.add(file.mark)
            try:
                x, y = samples_in(file.path, self._numbers, self.input_shape)
            except UNREADABLE as error:
                self._refused.add(file.mark)
                _log.warning("%s: skipped until it changes: %s", file.path, one_line(error))
                continue
            inputs.append(x)
            labels.append(y)
            times.append(file.modified)
            count += len(y)
        x, y = np.concatenate(inputs), np.concatenate(labels)
        found = Arrivals(content_keys(x, y), x, y)
        arrived = without_unusable(found, self.num_classes, str(self.folder))
        self._rates.observe(arrived.y, rounds, self._share(times, rounds))
        self._surveyed, self._contact = None, time.time()
        return arrived

    def survey(self, until_round: int) -> None:
        """Count the labels of what waits, by names and times; takes nothing, needs no model."""
        labels, times, count = [np.zeros(0, dtype=np.int64)], [], 0
        for file in self._new_files():
            if count >= self.limit:
                break
            with suppress(*UNREADABLE):  # that is for arrivals to say
                labels.append(labels_in(file.path, self._numbers, self.input_shape))
                times.append(file.modified)
                count += len(labels[-1])
        rounds, self._surveyed = self._clock.ahead(until_round), LabelRates()
        self._surveyed.load_state_dict(self._rates.state_dict())
        self._surveyed.observe(np.concatenate(labels), rounds, self._share(times, rounds))

    def release(self) -> None:
        """Delete or move the files that were read; only once their samples are on the disk."""
        if self.after.keeps:
            return
        for file in list(self._files()):
            if file.mark in self._done and file.mark not in self._refused:
                with suppress(FileNotFoundError):  # it is gone, or there is a new one of its name
                    facts = file.path.stat()
                    same = facts.st_mtime_ns == file.modified
                    if same and self.after.apply(file.path, self.folder):
                        self._done.discard(file.mark)

    def _share(self, times: Sequence[int], rounds: int) -> float:
        """Return how much of what files hold came in the rounds that passed, by their times."""
        span = (max(times) - min(times)) / 1e9 if times else 0.0
        passed = max(1, rounds)
        elapsed = time.time() - self._contact if self._contact else 0.0
        lasts = min(max(elapsed / passed, _ROUND[0]), _ROUND[1])
        return passed / max(passed, span / lasts)

    def label_velocity(self, num_classes: int) -> Floats:
        """Give the samples of each label that arrived per round, lately."""
        return (self._surveyed or self._rates).per_round(num_classes)

    def state_dict(self) -> dict[str, Any]:
        """Return which files were read, and how fast they came."""
        marks = {"done": self._done, "refused": self._refused}
        state: dict[str, Any] = {
            name: np.array(sorted(some), dtype=np.int64) for name, some in marks.items()
        }
        state |= {"rates": self._rates.state_dict(), "contact": self._contact}
        return state | {"clock": self._clock.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` returned."""
        self._done = set(state["done"].tolist())
        # An older state does not say what could not be read: such files are left alone.
        self._refused = set(state["refused"].tolist()) if "refused" in state else set(self._done)
        self._contact = float(state.get("contact", 0.0))
        self._rates.load_state_dict(state["rates"])
        self._clock.load_state_dict(state["clock"])

    def _new_files(self) -> list[_File]:
        """Files that were not read and are not being written, the oldest first."""
        files = list(self._files())
        present = {file.mark for file in files}
        if len(self._done - present) > _VANISHED:
            self._done &= present
        self._refused &= self._done
        new, now = [file for file in files if file.mark not in self._done], time.time()
        # Files from the future are read: the clock was set back, and may stay so.
        return sorted(f for f in new if not 0 <= now - f.modified / 1e9 < self.settle)

    def _files(self) -> Iterator[_File]:
        """All files of the folder and its sub-folders that are of a known kind."""
        for entry in _entries(self.folder):
            inside = _entries(Path(entry.path)) if entry.is_dir() else []
            for candidate, kinds in [(entry, (".npz",)), *((inner, KINDS) for inner in inside)]:
                if candidate.name.lower().endswith(kinds) and candidate.is_file():
                    with suppress(FileNotFoundError):  # it may be gone by now
                        yield self._file(candidate)

    def _file(self, entry: os.DirEntry[str]) -> _File:
        path, facts = Path(entry.path), entry.stat()
        name = path.relative_to(self.folder).as_posix()
        text = f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}".encode(errors="surrogateescape")
        digest = hashlib.blake2b(text, digest_size=8).digest()
        return _File(facts.st_mtime_ns, path, int.from_bytes(digest, "little", signed=True))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """List what is in a folder, without hidden files; nothing if it is not there."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
