"""A device that is killed again and again while it writes what it remembers."""

import subprocess
import sys

# A process that has imported everything forks a writer, kills it at a random moment and looks at
# what it left: fifty times for the state, fifty for the store of samples. Writers report what is
# safely on the disk by the number of the last change; that much must be there, and all of it sound.
STATE = """
def write(start, report):
    for number in range(start + 1, start + 10**9):
        state = ClientState(context, "monday", number, training=True)
        state["memory"] = {"number": number, "array": np.full(30_000, number)}
        state.save()
        report(number)

def read():
    state = ClientState(context, "monday", 10**9)
    memory = state.get("memory", {"number": 0, "array": np.zeros(1)})
    assert (memory["array"] == memory["number"]).all(), "garbage"
    return memory["number"]
"""
STORE = """
def open_store():
    return DiskStore(folder / "samples", "digits", capacity=9)

def sample(key):
    return np.full((1, 1000), key, dtype=np.float32)

def write(start, report):
    store = open_store()
    for number in range(start + 1, start + 10**9):
        gone = store.keys[:-8] if len(store) > 8 else []
        assert store.swap(gone, [number], sample(number), [number % 10])
        store.memo = {"number": number}
        store.commit()
        report(number)

def read():
    store = open_store()
    x, y = store.read()
    assert len(store) <= 9
    assert (x == store.keys[:, None]).all() and (y == store.keys % 10).all(), "garbage"
    newest = int(store.keys[-1]) if len(store) else 0
    assert store.keys.tolist() == list(range(newest - len(store) + 1, newest + 1))
    assert store.memo.get("number", 0) == newest
    store.commit()  # which clears up after one that was cut off
    return newest
"""
LOOP = (
    """
import os, random, signal, struct, sys, time
from pathlib import Path
import numpy as np
from flwr.app import Context, RecordDict
from forager.client_app.device.sample_store import DiskStore
from forager.client_app.device.state import ClientState

folder = Path(sys.argv[1])
context = Context(1, 2, {"client-id": "camera-7", "state-dir": str(folder)}, RecordDict(), {})
"""
    "{what}"
    """
random.seed(int(sys.argv[2]))
known = 0
for _ in range(50):
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        write(known, lambda number: os.write(there, struct.pack("<q", number)))
    os.close(there)
    for _ in range(random.randint(2, 6)):
        last = struct.unpack("<q", os.read(here, 8))[0]  # it is at work
    time.sleep(random.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = b"".join(iter(lambda: os.read(here, 1 << 16), b""))
    os.close(here)
    reported = struct.unpack("<q", said[-8:])[0] if said else last
    found = read()
    assert reported <= found <= reported + 1, (reported, found)
    known = found
print(known, len(list(folder.iterdir())))
"""
)


def killed_fifty_times(tmp_path, what, files):
    script = LOOP.replace("{what}", what)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    writes, left = map(int, done.stdout.split())
    assert writes > 100  # it was killed while it wrote, not before
    assert left <= files  # and leaves no unfinished files behind


def test_the_state_is_never_garbage_and_never_older_than_what_was_saved(tmp_path):
    killed_fifty_times(tmp_path, STATE, files=2)  # one is the state before


def test_the_stored_samples_are_never_garbage_and_none_is_lost(tmp_path):
    killed_fifty_times(tmp_path, STORE, files=1)
