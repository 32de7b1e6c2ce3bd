"""What a client keeps to itself, whatever the server asks: answers without noise, error texts."""

from __future__ import annotations

import errno
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.tasks.errors import SayableError, advice
from ..core.wire.keys import IDENTIFY

if TYPE_CHECKING:
    from ..core.config import RunConfig
    from .batch import ClientBatch

_OURS = str(Path(__file__).resolve().parents[1])
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def check_question(kind: str, config: RunConfig) -> None:
    """Refuse what would be answered without noise, where the run promises noise."""
    tested = kind == "evaluate" and config.fraction_evaluate > 0
    if config.privacy == "local-dp" and kind != "train" and not tested:
        raise SayableError(f"privacy = 'local-dp': {kind} would be answered without noise")


def check_batch(batch: ClientBatch) -> None:
    """Refuse questions of a batch; who a client is may always be asked."""
    if batch.kind != IDENTIFY:
        check_question(batch.kind, batch.config)


def reason_of(error: Exception, *, with_text: bool) -> str:
    """Return what the server is told of an error: its type and its place, and what to do.

    Its text may quote data, as "could not convert string ... to float" does. It is for the device's
    own log; the server gets it in simulation, or where the run's ``clients.error-texts`` says so.

    >>> reason_of(OSError(errno.ENOSPC, "No space left on device"), with_text=False)
    'OSError; make room on the disk of this device (state-dir)'
    """
    name = type(error).__name__
    if with_text or isinstance(error, SayableError):
        return f"{name}: {error}{_advice(error)}"
    return f"{name}{_place(error)}{_advice(error)}"


def says_texts(run_config: Mapping[str, Any]) -> bool:
    """Return whether the run asks for the texts of errors; never where it promises noise."""
    asked = bool(run_config.get("clients.error-texts", False))
    return asked and run_config.get("privacy", "none") != "local-dp"


def _place(error: Exception) -> str:
    """Return the innermost line of this app or the user's modules that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f for f in frames if f.filename.startswith(_OURS) or not f.filename.startswith(_INSTALLED)
    ]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" at {Path(frame.filename).name}:{frame.lineno} (the text is in the device's log)"


def _advice(error: Exception) -> str:
    """Return what the owner of a device can do about an error, if that is known."""
    if isinstance(error, ImportError) and advice(error):
        return f"; {advice(error)}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; make room on the disk of this device (state-dir)" if full else ""
