"""What to do with a file whose samples have been read and are stored on disk."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import SayableError, invalid, one_line

_log = logging.getLogger("forager")
_ALLOWED = '"keep", "delete" or "move:<folder>"'


@dataclass(frozen=True)
class AfterReading:
    """Keep files, delete them, or move them to a folder."""

    deletes: bool = False
    folder: Path | None = None

    @classmethod
    def of(cls, text: object, origin: Path) -> "AfterReading":
        """Return what a node config asks for; an error that says what is allowed."""
        if text in ("keep", "delete"):
            return cls(deletes=text == "delete")
        kind, _, name = str(text).partition(":")
        if kind != "move" or not name.strip():
            raise SayableError(f"node config: {invalid('stream-read', text, _ALLOWED)}")
        folder = Path(name.strip()).expanduser()
        if folder.resolve().is_relative_to(origin.resolve()):
            allowed = f"a folder that is not inside stream-path = {str(origin)!r}"
            raise SayableError(f"node config: {invalid('stream-read', text, allowed)}")
        return cls(folder=folder)

    @property
    def keeps(self) -> bool:
        """Whether files stay where they are."""
        return not self.deletes and self.folder is None

    def apply(self, path: Path, origin: Path) -> bool:
        """Delete or move a file; return whether it is gone. Failures are logged."""
        try:
            if self.folder is not None:
                target = _free(self.folder / path.relative_to(origin))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
            elif self.deletes:
                path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: was read, but cannot be removed: %s", path, one_line(error))
        return not path.exists()


def _free(path: Path) -> Path:
    """Return a name that no file has."""
    number, free = 0, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
