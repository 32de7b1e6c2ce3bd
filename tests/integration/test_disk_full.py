"""A file system that is really full: nothing here is faked."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forager.server_app.callbacks.checkpoint import load_checkpoint
from forager.server_app.run_folder import RunFolder
from forager.tools.engine.local import run_local
from forager.tools.flower.env import PROJECT

# A file system of their own for the results of these processes.
MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
IN_A_SMALL_ROOM = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]
# A run that cannot start, because there is no room; then one that finds none from its fourth round
# to its eighth. What it has on the disk then, and at the end, is copied to where there is room.
RUNS = """
import json, shutil, sys
from pathlib import Path
from forager.server_app.callbacks.standard import Progress
from forager.tools.engine.local import run_local
from forager.server_app.run_folder import RunFolderError

results, config, outside = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
ballast = results / "ballast"

def fill():
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            print("full:", error, flush=True)

def crowded(self, loop, told=Progress.on_round_end):
    if loop.round == 4:
        fill()
    if loop.round == 8:
        shutil.copytree(results / "crowded", outside / "crowded")
        ballast.unlink()
    return told(self, loop)

fill()
try:
    run_local(config)
except RunFolderError as error:
    print("refused:", error, flush=True)
shutil.rmtree(results / "crowded", ignore_errors=True)
ballast.unlink()
Progress.on_round_end = crowded
print("ended:", run_local(config, quiet=False).reason, flush=True)
shutil.copytree(results / "crowded", outside / "ended")
"""


def in_a_small_room(size: str, room: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds a file system of that size in a folder."""
    return subprocess.run(
        [*IN_A_SMALL_ROOM, size, str(room), *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.fixture
def room(tmp_path):
    """A folder that may become a file system."""
    folder = tmp_path / "results"
    folder.mkdir()
    if not shutil.which("unshare") or in_a_small_room("1m", folder, "true").returncode:
        pytest.skip("this system gives no file system of one's own (unshare --mount)")
    return folder


def test_a_run_goes_on_without_checkpoints_and_says_so(tmp_path, room):
    config = {
        "num-server-rounds": 9,
        "num-clients": 20,  # events of four rounds are longer than a block of the disk
        "clients-per-round": 20,
        "client-selector": "aoi",
        "report": False,
        "output-dir": str(room),
        "run-name": "crowded",
        "data.cache-dir": str(tmp_path / "cache"),
    }
    outside = tmp_path / "outside"
    outside.mkdir()
    arguments = [str(room), json.dumps(config), str(outside)]
    done = in_a_small_room("2m", room, sys.executable, "-c", RUNS, *arguments)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("full: [Errno 28] No space left on device") == 2
    assert f"refused: output-dir = '{room}' cannot be written: No space left" in done.stdout

    # The run goes on and says what it could not do, and from where it could be resumed.
    assert "ended: completed" in done.stdout
    warning = "checkpoint round-000004.safetensors could not be written: No space left on device"
    assert f"{warning}; the run continues, and can be resumed from round-000003" in done.stdout
    assert done.stdout.count("could not be written") == 4  # rounds 4 to 7
    assert "events are being lost" in done.stdout
    assert load_checkpoint(str(outside / "ended"))[1]["round"] == 9
    assert not list(outside.rglob("*.tmp"))

    # Had it died on the full disk, the last good checkpoint would have been there.
    crowded = outside / "crowded"
    assert load_checkpoint(str(crowded))[1]["round"] == 3
    run_local({**config, "resume-from": str(crowded), "run-name": ""})
    finished = [e for e in RunFolder(crowded).read_events() if e["event"] == "round-finished"]
    assert [event["round"] for event in finished] == list(range(1, 10))
    ends = [(folder / "model.safetensors").read_bytes() for folder in (crowded, outside / "ended")]
    assert ends[0] == ends[1]  # as if the disk had never been full


# A device that has to remember its model, on a disk that is full and then is not.
DEVICE = """
import sys
from pathlib import Path
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.core.learning.model_arrays import read_arrays
from forager.core.config import default_config, read_config
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
state, ballast = Path(sys.argv[1]), Path(sys.argv[1], "ballast")
config = {**default_config(), "strategy": "moon", "model": "mlp", "data.cache-dir": sys.argv[2]}
node = {"partition-id": 0, "num-partitions": 4, "state-dir": str(state)}
model = load_task(read_config(config).task_spec()).build_model()

def train(server_round):
    config_record = ConfigRecord({"server-round": server_round})
    content = RecordDict({"arrays": to_record(read_arrays(model)), "config": config_record})
    message = Message(content, dst_node_id=7, message_type="train")
    reply = answer_one(message, Context(1, 7, node, RecordDict(), config))
    return reply.error.reason if reply.has_error() else "trained"

print(train(1))
try:
    ballast.write_bytes(bytes(1 << 21))
except OSError as error:
    print("full:", error)
print(train(2))
ballast.unlink()
print(train(3), sorted(path.suffix for path in state.iterdir()))
"""


def test_a_device_without_room_says_so_and_goes_on_when_there_is_some(tmp_path, room):
    arguments = [str(room), str(tmp_path / "cache")]
    done = in_a_small_room("1m", room, sys.executable, "-c", DEVICE, *arguments)
    assert done.returncode == 0, done.stdout
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("trained", "full", "OS"))
    ]
    assert lines[0] == "trained", done.stdout
    assert lines[1] == "full: [Errno 28] No space left on device"
    assert lines[2].startswith("OSError at files.py:")
    assert lines[2].endswith("; make room on the disk of this device (state-dir)")
    assert lines[3] == "trained ['.before', '.lock', '.safetensors']"
