"""Programs are stopped with everything that they started, and nothing else is."""

import os
import subprocess
import sys
import time

import pytest
from forager.tools.flower.processes import Program, ProgramError, answers, free_port, process_table

# A program whose child is deaf to SIGTERM and leads a session of its own, as Flower's are.
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
print("ready", child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(source):
        command = [sys.executable, "-c", source]
        program = Program(command, env=os.environ, cwd=tmp_path, log=tmp_path / "log.txt")
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()


def running(pid):
    return any(p.pid == pid and p.state != "Z" for p in process_table())


def child_of(program):
    program.wait_for(lambda: "ready" in program.log.read_text(), 30)
    return int(program.log.read_text().split()[1])


@pytest.mark.parametrize("end", [Program.stop, Program.kill])
def test_children_in_other_sessions_end_too(start, end):
    program = start(PARENT)
    child = child_of(program)
    assert running(child)
    end(program)
    assert not program.alive
    assert not running(child)
    assert program.family() == []


def test_orphans_are_still_known(start):
    program = start(PARENT)
    child = child_of(program)
    program.process.kill()
    program.process.wait()
    assert [process.pid for process in program.family()] == [child]
    program.stop()
    assert not running(child)


def test_strangers_are_left_alone(start):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        program = start(PARENT)
        child_of(program)
        program.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_program_that_ends_early_is_reported_with_its_last_words(start):
    program = start("import sys; sys.exit('no such port')")
    with pytest.raises(ProgramError, match="ended before it was ready:\nno such port"):
        program.wait_for(lambda: False, 30)


def test_a_program_that_takes_too_long_is_reported(start):
    with pytest.raises(ProgramError, match=r"was not ready in 0\.5 s"):
        start("import time; time.sleep(600)").wait_for(lambda: False, 0.5)


def test_health_is_asked_of_a_real_server(start):
    port = free_port()
    assert not answers(port)
    server = start(f"import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port})")
    server.wait_for(lambda: answers(port, "/"), 30)
    assert not answers(port, "/no-such-page")


def test_stopping_is_quick_where_programs_are_willing(start):
    program = start("import time; print('ready', 0, flush=True); time.sleep(600)")
    program.wait_for(lambda: "ready" in program.log.read_text(), 30)
    begun = time.monotonic()
    program.stop()
    assert time.monotonic() - begun < 3
