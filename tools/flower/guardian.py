"""Ends a program and all that it started when the process that started it is gone.

A launcher that is killed (``kill -9``, the OOM killer) cannot stop its SuperLink, and with it Ray.
This small process can: it holds one end of a pipe and reads until the launcher is gone.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import family, send

_DISMISSED = b"."
_GRACE = 5.0  # seconds to tidy up in, before being killed
_LOOK_EVERY = 1.0


@contextmanager
def guarded(pid: int, scratch: Path, run: Path) -> Iterator[None]:
    """Have a program ended if this process is killed while the block runs."""
    guardian = subprocess.Popen(
        [sys.executable, "-m", "forager.tools.flower.guardian", str(pid), str(scratch), str(run)],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        start_new_session=True,
    )
    assert guardian.stdin is not None
    try:
        yield
    finally:
        try:
            guardian.stdin.write(_DISMISSED)
            guardian.stdin.close()
        except BrokenPipeError:  # the guardian was killed
            guardian.kill()
        guardian.wait()


def watch(pid: int) -> bool:
    """Wait until the launcher dismisses this process; False, and the program ended, if it is gone.

    The program's groups are learned while its tree is whole: what Ray starts may lose its parent.
    """
    import select

    groups = {pid}
    while not select.select([sys.stdin.buffer], [], [], _LOOK_EVERY)[0]:
        family(pid, groups)
    if sys.stdin.buffer.read(1) == _DISMISSED:
        return True
    family(pid, groups)
    send(pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while any(p.pid == pid for p in family(pid, groups)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left := family(pid, groups):
        for process in left:
            send(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    return False


def main(pid: int, scratch: Path, run: Path) -> None:
    """Guard one program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if watch(pid):
        return
    import shutil

    from .announcement import note_end, withdraw

    withdraw(run)
    note_end(run, "killed", "the process that started it was killed")
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
