"""Where random numbers come from: whatever protects something has one source."""

import ast
from functools import cache
from pathlib import Path

from forager.core.entropy import protective

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("core", "strategies", "selectors", "client_app", "server_app", "tools")
MAKERS = {"default_rng", "manual_seed", "RandomState", "Random", "SeedSequence", "generator"}

DATA = "how an experiment's data are made, split or held back; a device's own are its file's"
TRAINING = "initial weights and the order of mini-batches: the model that is sent shows them anyway"
CHOICE = "who is asked: no epsilon takes credit for that, and the log names them"
COMPARE = "how the server compares what it has been sent; nothing is hidden by it"
SUBSET = "which of its samples a client trains on: what is sent of them gets noise where any does"
DEVICES = "speeds and absences of simulated devices"

# Why each seeded generator may be foreseen by whoever knows the run's seed, which all clients do
PREDICTABLE = {
    "client_app/hooks/auxo.py": DATA,
    "core/tasks/groups.py": DATA,
    "core/tasks/noise/noisy.py": DATA,
    "core/tasks/pool.py": DATA,
    "selectors/cohorts/split_testing.py": COMPARE,
    "client_app/hooks/confirmed_labels.py": TRAINING,
    "client_app/hooks/coresets.py": SUBSET,
    "client_app/hooks/supports.py": SUBSET,
    "client_app/hooks/int8_uplink.py": "how values are rounded; what is sent shows it anyway",
    "core/entropy.py": "the one source, seeded in simulation only",
    "core/learning/objectives/per_fedavg.py": TRAINING,
    "core/learning/serving.py": TRAINING,
    "core/learning/trainer.py": TRAINING,
    "core/tasks/datasets/blobs.py": DATA,
    "core/tasks/datasets/diabetes.py": DATA,
    "core/tasks/datasets/digits.py": DATA,
    "core/tasks/datasets/hugging_face.py": DATA,
    "core/tasks/datasets/shapes.py": DATA,
    "core/tasks/datasets/synthetic.py": DATA,
    "core/tasks/models/build.py": TRAINING,
    "core/tasks/own_task.py": DATA,
    "core/tasks/partitions.py": DATA,
    "core/tasks/splits.py": DATA,
    "core/tasks/streams/sources.py": DATA,
    "selectors/cohorts/auxo.py": COMPARE,
    "selectors/cohorts/projection.py": COMPARE,
    "selectors/cohorts/separation.py": COMPARE,
    "selectors/similarities/signatures.py": "hashes that all must share to compare; no secret",
    "selectors/stream_selectors/base.py": SUBSET,
    "strategies/cohorts/grouped.py": CHOICE,
    "server_app/input_scaling.py": CHOICE,
    "strategies/layers/selection.py": CHOICE,
    "tools/engine/availability.py": DEVICES,
    "tools/engine/simulated_transport.py": DEVICES,
}


def calls(file: Path) -> list[ast.Call]:
    """What makes generators or seeds them."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    return [
        node for node in nodes if getattr(node.func, "attr", getattr(node.func, "id", "")) in MAKERS
    ]


@cache
def makers() -> dict[str, list[ast.Call]]:
    """What makes generators or seeds them, by file."""
    return {
        file.relative_to(ROOT).as_posix(): made
        for folder in PRODUCT
        for file in (ROOT / folder).rglob("*.py")
        if (made := calls(file))
    }


def test_every_generator_is_known_and_may_be_predictable() -> None:
    """A new one is either listed with a reason, or comes from ``core.entropy``."""
    assert set(makers()) == set(PREDICTABLE)


def test_unpredictable_numbers_come_from_one_place() -> None:
    unseeded = [file for file, made in makers().items() if any(not call.args for call in made)]
    assert unseeded == []


def test_whether_a_run_is_simulated_is_never_read_from_a_config() -> None:
    """The node config may have a partition-id on a device; who reads it asks for data or a name."""
    readers = {
        file.relative_to(ROOT).as_posix()
        for folder in ("client_app", "core", "strategies", "server_app")
        for file in (ROOT / folder).rglob("*.py")
        if any(
            isinstance(node, ast.Constant) and node.value == "partition-id"
            for node in ast.walk(ast.parse(file.read_text()))
        )
    }
    assert readers == {"client_app/clients.py"}


def test_outside_simulation_no_seed_matters() -> None:
    assert protective(True, 3, 1).random() == protective(True, 3, 1).random()
    assert protective(False, 3, 1).random() != protective(False, 3, 1).random()
