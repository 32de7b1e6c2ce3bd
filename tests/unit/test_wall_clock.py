"""Clocks may jump: deadlines, pauses and durations go by a clock that cannot.

What looks at the time of day is listed here, with the reason why a jump does no harm.
"""

import ast

from forager.tools.flower.env import PROJECT

FOLDERS = ("server_app", "client_app", "strategies", "selectors", "core", "tools", "docker")
HARMLESS = {
    "client_app/device/file_lock.py": "how long ago a node on another machine held the files",
    "server_app/run_folder.py": "the name of a new folder, which has a random part too",
    "tools/report/tail.py": "how long ago a run last wrote; shown, never acted on",
    "core/tasks/streams/folder.py": "whether a file is still being written, whatever its date",
    "tools/flower/reach.py": "how far the clock is from the server's, which is the question",
    "docker/submit.py": "a name; whether a run still writes, with a limit on a steady clock",
    "docker/credentials.py": "the dates of certificates",
}
WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}


def looks_at_the_wall_clock(source):
    """Tell whether a program calls a clock that somebody may set."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (getattr(node.func.value, "attr", getattr(node.func.value, "id", "")), node.func.attr)
        in WALL_CLOCKS
        for node in ast.walk(ast.parse(source))
    )


def test_what_it_finds():
    assert looks_at_the_wall_clock("import time\nstart = time.time()")
    assert looks_at_the_wall_clock("now = datetime.datetime.now(UTC)")
    assert not looks_at_the_wall_clock("start = time.monotonic()")


def test_only_what_a_jump_cannot_harm_looks_at_the_time_of_day():
    found = {
        path.relative_to(PROJECT).as_posix()
        for folder in FOLDERS
        for path in (PROJECT / folder).rglob("*.py")
        if looks_at_the_wall_clock(path.read_text())
    }
    assert found == HARMLESS.keys()
