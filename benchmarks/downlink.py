"""Bytes to clients, as models and as changes: ``python -m forager.benchmarks.downlink``.

Each row is one run on the local engine, done twice; both end with the same model, or there is no
table. Bytes are those of all messages to clients, questions included, per round. Megabytes per
second are of the model, for the change between the models of the last two rounds; the best of
several calls.
"""

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core.config import Scalar
from ..core.wire.changes import apply_change, encode_shortest
from ..core.wire.keys import IDENTIFY
from ..server_app.callbacks.checkpoint import load_checkpoint, load_earlier
from ..tools.engine.local import LocalResult, run_local

ROUNDS, REPEATS = 20, 5
_MLP: dict[str, Scalar] = {"model": "mlp", "net.hidden": 512}
_ALL: dict[str, Scalar] = {"client-selector": "all"}
RUNS: dict[str, dict[str, Scalar]] = {
    "softmax, all clients": _ALL,
    "mlp, all clients": {**_ALL, **_MLP},
    "small-cnn, all clients": {**_ALL, "model": "small-cnn"},
    "mlp, 3 of 30 clients": {**_MLP, "num-clients": 30, "clients-per-round": 3},
    "mlp, 3 of 30, all evaluate": {
        **_MLP,
        "num-clients": 30,
        "clients-per-round": 3,
        "fraction-evaluate": 1.0,
        "data.client-test-share": 0.2,
    },
    "mlp, CosAge": {**_MLP, "strategy": "cosage"},
    "mlp, CosAge, all evaluate": {
        **_MLP,
        "strategy": "cosage",
        "fraction-evaluate": 1.0,
        "data.client-test-share": 0.2,
    },
}
COLUMNS = (
    *("run on digits", "model, bytes", "down per round: whole models", "changes", "ratio"),
    *("encode MB/s", "decode MB/s"),
)


def main() -> None:
    """Print the table, one row per run."""
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in RUNS.items():
            print(f"| {name} | {' | '.join(measured(settings, Path(folder)))} |", flush=True)


def measured(settings: dict[str, Scalar], folder: Path) -> list[str]:
    """Return the cells of one run."""
    shared: dict[str, Scalar] = {
        "output-dir": str(folder),
        "data.cache-dir": str(folder / "cache"),
        "report": False,
        "num-server-rounds": ROUNDS,
        "checkpoint.every": 1,
        **settings,
    }
    whole, changes = (run_local({**shared, "downlink": how}) for how in ("whole", "changes"))
    before, after = _last_two_models(changes)
    assert _model_file(whole) == _model_file(changes), "the same model must come of both"
    change = encode_shortest(before, after)
    encode = _best_seconds(lambda: encode_shortest(before, after))
    decode = _best_seconds(lambda: apply_change(before, change))
    size = sum(array.nbytes for array in after.values())
    down = [_bytes_down(result) / ROUNDS for result in (whole, changes)]
    cells = [f"{size:,}", *(f"{each:,.0f}" for each in down), f"{down[1] / down[0]:.2f}"]
    return [*cells, f"{size / 1e6 / encode:.0f}", f"{size / 1e6 / decode:.0f}"]


def _bytes_down(result: LocalResult) -> int:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    exchanges = [event for event in map(json.loads, lines) if event["event"] == "exchange"]
    return sum(event["bytes-down"] for event in exchanges if event["kind"] != IDENTIFY)


def _model_file(result: LocalResult) -> bytes:
    return (result.folder / "model.safetensors").read_bytes()


def _last_two_models(result: LocalResult) -> list[dict[str, Any]]:
    """Return the models of the last two rounds, of which there are checkpoints."""
    earlier = load_earlier(result.folder / "checkpoints", ROUNDS)
    assert earlier is not None
    _, last = load_checkpoint(str(result.folder))
    return [earlier["arrays"], last["arrays"]]


def _best_seconds(call: Callable[[], object]) -> float:
    best = math.inf
    for _ in range(REPEATS):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
