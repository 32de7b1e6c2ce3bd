"""Time to an accuracy on slow and fast devices: wait for all, over-commit, or a buffer (FedBuff).

``python -m forager.benchmarks.buffered`` prints a row per way and selector: simulated seconds until
the test accuracy is reached, the updates used until then, and in how many seeds it was reached.
"""

import argparse
import tempfile
from collections.abc import Sequence
from statistics import mean, stdev

from ..core.log.events import Evaluated, Exchanged, read_event
from ..server_app.run_folder import RunFolder
from ..tools.engine.local import run_local
from ..tools.experiments.tables import Table

TARGET = 0.85
CLIENTS, AT_A_TIME = 60, 10
WAYS: dict[str, dict[str, int | float]] = {
    "wait for all": {},
    "over-commit 0.3": {"round.over-commit": 0.3},
    "over-commit 1.0": {"round.over-commit": 1.0},
    "buffer 5": {"aggregation.buffer": 5},
    "buffer 2": {"aggregation.buffer": 2},
}
SELECTORS: dict[str, dict[str, str]] = {
    "random": {"client-selector": "random"},
    "cosage, piggyback": {"client-selector": "cosage", "summary.mode": "piggyback"},
}


def time_to_target(seed: int, **keys: int | float | str | bool) -> tuple[float, int] | None:
    """Return simulated seconds and uploads until the target is reached; None if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_local(
            {
                "task": "digits",
                "model": "mlp",
                "num-clients": CLIENTS,
                "clients-per-round": AT_A_TIME,
                "num-server-rounds": 600,
                "local-epochs": 2,
                "devices.slow": True,
                "devices.spread": 1.5,
                "early-stop.target": TARGET,
                "checkpoint.every": 0,
                "report": False,
                "seed": seed,
                "output-dir": folder,
                **keys,
            }
        )
        seconds, uploads = 0.0, 0
        for line in RunFolder.open(result.folder).read_events():
            event = read_event(dict(line))
            if isinstance(event, Exchanged):
                seconds += event.simulated_seconds or 0.0
                uploads += event.received if event.kind == "train" else 0
            if isinstance(event, Evaluated) and (event.value("accuracy") or 0.0) >= TARGET:
                return seconds, uploads
    return None


def row(selector: str, way: str, seeds: Sequence[int]) -> list[str]:
    """Return what one way of one selector took, over seeds."""
    found = [time_to_target(seed, **SELECTORS[selector], **WAYS[way]) for seed in seeds]
    done = [result for result in found if result is not None]
    times = [seconds for seconds, _ in done]
    spread = f" ± {stdev(times):.0f}" if len(times) > 1 else ""
    took = f"{mean(times):.0f}{spread}" if times else "never"
    updates = f"{mean(n for _, n in done):.0f}" if done else "-"
    return [selector, way, took, updates, f"{len(done)} of {len(found)}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=10)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    heads = ["who", "how", f"simulated s to {100 * TARGET:.0f} %", "updates used", "reached"]
    rows = [row(selector, way, seeds) for selector in SELECTORS for way in WAYS]
    print(Table([heads, *rows]).markdown())


if __name__ == "__main__":
    main()
