"""Check that a run may continue another, and continue it."""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from safetensors import SafetensorError, safe_open
from torch import nn

from ..core.config import RunConfig
from ..core.config.reading import without_fixed
from ..core.learning.model_arrays import frozen_arrays, read_arrays
from ..core.storage.tree import FORMAT
from ..core.tasks.spec import FOUND, STANDARD
from ..core.wire.arrays import to_record
from ..core.wire.flower_private import is_simulation
from ..strategies.federation.grids import simulates
from .callbacks.checkpoint import CheckpointError
from .loop import Loop
from .run_folder import RunFolder

# Where a run has its clients; only on devices are they other ones than in a simulation.
RUNS_ON = "runs-on"
LOCAL, SIMULATION, DEVICES = "local engine", "Flower's simulation", "devices"

# Keys that may differ between a run and its continuation: they do not change what a round computes.
_FREE_KEYS = {
    "num-server-rounds",
    "output-dir",
    "run-name",
    "resume-from",
    "callbacks",
    "report",
    "strategy",
    "downlink",
}
_FREE_SECTIONS = ("round.", "early-stop.", "checkpoint.", "local.", "data.path", "data.cache-dir")


def place_of(grid: Grid) -> str:
    """Return where a grid has its clients, as `config.json` says under `RUNS_ON`."""
    if is_simulation(grid):
        return SIMULATION
    return LOCAL if simulates(grid) else DEVICES


def check_same_place(folder: RunFolder, place: str) -> None:
    """Raise :class:`CheckpointError` if simulated clients were to continue a run of devices."""
    before = folder.read_config().get(RUNS_ON, place)
    if before != place and DEVICES in (before, place):
        raise CheckpointError(
            f"resume-from = {str(folder.path)!r}: that run was on {before}, this one is on "
            f"{place}: its clients and data differ. Continue it there"
        )


def check_same_run(saved: dict[str, Any], config: RunConfig) -> None:
    """Raise :class:`CheckpointError` if a setting that matters differs from the checkpoint's."""
    now, saved = config.flat(), without_fixed(_as_set(saved))
    free = set(_FREE_KEYS)
    if config.schedule.kind == "cosine" and not config.schedule.rounds:
        free.remove("num-server-rounds")  # the schedule ends with the run
    different = [
        f"{key} is {now.get(key)!r}, was {saved.get(key)!r}"
        for key in sorted(saved.keys() | now.keys())
        if key not in free and not key.startswith(_FREE_SECTIONS) and saved.get(key) != now.get(key)
    ]
    if different:
        raise CheckpointError(
            f"resume-from = {config.resume_from!r}: that run differs: {'; '.join(different)}"
        )


def is_model(where: str) -> bool:
    """Return whether a file holds a model only, and no state of a run: a new run begins with it."""
    try:
        with safe_open(where, "numpy") as file:
            return (file.metadata() or {}).get("format") != FORMAT
    except (OSError, SafetensorError):  # a folder, or nothing at all: said elsewhere
        return False


def first_arrays(where: str, model: nn.Module) -> ArrayRecord:
    """Return what round 1 begins with: the model's own arrays, or those of a file that fits it."""
    own, frozen = read_arrays(model), frozen_arrays(model)
    if not is_model(where):
        return to_record(own)
    with safe_open(where, "numpy") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _form(to_record(stored)) != _form(to_record({**frozen, **own})):
        raise CheckpointError(f"resume-from = {where!r}: its model has other arrays than this run")
    if not all(np.array_equal(stored[name], array) for name, array in frozen.items()):
        raise CheckpointError(
            f"resume-from = {where!r}: its frozen arrays are not those of this run: they come from "
            "another seed or backbone"
        )
    return to_record({name: stored[name] for name in own})


def restore(loop: Loop, state: dict[str, Any], where: str) -> None:
    """Let a loop go on from a state; :class:`CheckpointError` if it is not of such a run."""
    model = _form(loop.arrays)
    try:
        loop.load_state(state)
    except Exception as error:  # of any layer, whatever a stranger has put in its place
        raise CheckpointError(
            f"resume-from = {where!r}: its state cannot be used: {type(error).__name__}: {error}"
        ) from error
    if _form(loop.arrays) != model:
        raise CheckpointError(f"resume-from = {where!r}: its model has other arrays than this run")


def _form(arrays: ArrayRecord) -> dict[str, object]:
    return {name: (tuple(array.shape), array.dtype) for name, array in arrays.items()}


def _as_set(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved config as it was set: what the run found to scale by is not a setting.

    >>> _as_set({"data.scale": "standard:AACA"})
    {'data.scale': 'standard'}
    """
    found = str(saved.get("data.scale", "")).startswith(FOUND)
    return {**saved, "data.scale": STANDARD} if found else saved
