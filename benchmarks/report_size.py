"""How large a run's report is, and how long it takes to write and to open.

``python -m forager.benchmarks.report_size`` makes up logs of 100 clients x 200 rounds and 1,000 x
500 in which every method has something to show, writes them as runs do, and opens the pages in
Chromium.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from ..core.config import default_config
from ..server_app.run_folder import RunFolder
from ..tools.report import write_report
from .chromium import Tab, chromium

SIZES = ("100x200", "1000x500")
OPENINGS = 5
CLASSES = 10
GROUPS = 4
MOST_PLANNED = 100  # clients whose part of a plan is written down, as in a run
MOST_COMPARED = 200  # clients of a similarity matrix, as in a run


def made_up_events(clients: int, rounds: int, per_round: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the log of a run in which every picture has something to show.

    Parameters
    ----------
    clients, rounds : int
        How many.
    per_round : int
        Clients chosen in each round; a tenth of all by default.

    Examples
    --------
    >>> events = list(made_up_events(8, 3))
    >>> events[0]["event"], events[-1]["event"]
    ('run-started', 'run-finished')
    """
    rng = np.random.default_rng(0)
    keys = [f"client-{number}" for number in range(clients)]
    config = default_config() | {
        "noise": "closed-set",
        "corruption.rate": 0.4,
        "client-selector": "cosage",
    }
    yield {"event": "run-started", "time": 0.0, "strategy": "made up", "config": config}
    yield {"event": "baseline", "what": "always class 3", "metrics": {"accuracy": 0.1}}
    counts = [[(7 * client + 3 * label) % 40 for label in range(10)] for client in range(clients)]
    yield {"event": "classes-spread", "clients": clients, "counts": counts[:200]}
    for current in range(1, rounds + 1):
        places = rng.choice(clients, per_round or max(2, clients // 10), replace=False)
        chosen = [keys[place] for place in np.sort(places)]
        for event in _round(current, rounds, keys, chosen, rng):
            yield {**event, "round": current, "time": float(current)}
    end = {"reason": "completed", "rounds": rounds, "seconds": float(rounds), "message": ""}
    yield {"event": "run-finished", "time": float(rounds), **end}


def _round(
    current: int, rounds: int, keys: list[str], chosen: list[str], rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    learnt = 1 - 0.9 * np.exp(-4 * current / rounds)
    noise = float(rng.normal(0, 0.02))
    others = [key for key in keys if key not in chosen][:200]
    yield {
        "event": "exchange",
        "kind": "query.summary",
        "bytes-down": 900 * len(keys),
        "bytes-up": 9,
    }
    yield {
        "event": "selected",
        "phase": "train",
        "chosen": chosen,
        "seconds": 0.01,
        "scores": np.linspace(-0.5, 1, len(chosen)).round(4).tolist(),
        "ages": [(current + place) % 9 for place in range(len(chosen))],
        "others": others,
        "other-scores": np.linspace(-0.6, 0.9, len(others)).round(4).tolist(),
        "other-ages": [place % 5 for place in range(len(others))],
    }
    seconds = dict(zip(chosen, rng.lognormal(0, 1, len(chosen)).tolist(), strict=True))
    slowest = sorted(chosen, key=lambda key: -seconds[key])[:3]
    yield {
        "event": "exchange",
        "kind": "train",
        "received": len(chosen) - 1,
        "failed": {chosen[0]: "RuntimeError: out of memory"} if current % 5 == 0 else {},
        "late": [chosen[1]] if current % 7 == 0 else [],
        "bytes-down": 10_000 * len(chosen),
        "bytes-up": 1200 * len(chosen),
        "reply-seconds": {
            "median": float(np.median(list(seconds.values()))),
            "slowest": {key: seconds[key] for key in slowest},
        },
    }
    if current % 11 == 0:
        yield {"event": "quarantined", "client": chosen[-1], "reason": "update of norm 1e+09"}
    yield {"event": "uplink", "bytes-sparse": 1000, "bytes-dense": 9000}
    yield from _methods(current, rounds, keys, chosen, rng)
    yield {"event": "aggregated", "metrics": {"train-loss": 2.3 * (1 - learnt) + 0.1}}
    accuracy = float(np.clip(learnt + noise, 0, 1))
    yield {
        "event": "evaluated",
        "where": "server",
        "metrics": {"accuracy": accuracy},
        "loss": 2.4 * (1 - learnt),
    }
    spread = {"mean": accuracy, "worst-10": 0.6 * accuracy, "best-10": 1.0}
    yield {"event": "evaluated", "where": "clients", "spread": {"accuracy": spread}}
    yield {"event": "round-finished", "seconds": 1.0 + abs(noise), "away": keys[-2:]}


def _methods(
    current: int, rounds: int, keys: list[str], chosen: list[str], rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Yield what coresets, stores and cohorts write down in a round."""
    sizes = rng.integers(5, 50, len(chosen)).tolist()
    total, new = sum(sizes), sum(sizes) if current % 10 == 2 else 0
    yield {
        "event": "coresets",
        "sizes": sizes,
        "samples": {"new": new, "kept": total - new, "random": 0},
        "labels": rng.integers(10, 90, CLASSES).tolist(),
        "clean-share": 0.6 + 0.3 * current / rounds,
    }
    stored = rng.integers(0, 5, CLASSES) * np.minimum(current, np.arange(CLASSES) * 20)
    yield {"event": "streams", "stored": stored.tolist(), "arrived": 100 * current}
    if current == 1:
        shares = np.arange(min(len(keys), MOST_PLANNED) * CLASSES).reshape(-1, CLASSES) % 5
        quota = dict(zip(keys, shares.tolist(), strict=False))
        planned = {"clients": len(keys), "stored": shares.sum(0).tolist(), "quota": quota}
        yield {"event": "planned", **planned}
    split = rounds // 3
    names = ["0"] if current < split else [f"0.{group}" for group in range(GROUPS)]
    if current == split:
        yield {"event": "regrouped", "cohorts": {name: {"0": 1.0} for name in names}}
        yield _similarity(keys, rng)
    members = {name: len(keys) // len(names) for name in names}
    moved = {}
    if current in (1, split):
        moved = {key: names[place % len(names)] for place, key in enumerate(keys)}
    left = dict.fromkeys(names, 0.9 - 0.4 * current / rounds)
    yield {"event": "cohorts", "members": members, "moved": moved, "heterogeneity": left}
    accuracy = {name: 0.5 + 0.1 * place + current / rounds / 5 for place, name in enumerate(names)}
    yield {"event": "cohorts-evaluated", "means": accuracy}


def _similarity(keys: list[str], rng: np.random.Generator) -> dict[str, Any]:
    shown = keys[:MOST_COMPARED]
    groups = np.arange(len(shown)) % GROUPS
    chance = rng.uniform(0, 0.4, (len(shown), len(shown)))
    matrix = 0.5 * (groups[:, None] == groups) + (chance + chance.T) / 2
    labels = {key: f"0.{group}" for key, group in zip(shown, groups, strict=True)}
    rows = np.round(matrix, 4).tolist()
    return {"event": "similarity", "clients": shown, "matrix": rows, "labels": labels}


def write_run(folder: Path, clients: int, rounds: int) -> RunFolder:
    """Write a made-up run as a real one is written."""
    run = RunFolder.create(folder, f"{clients}x{rounds}")
    for event in made_up_events(clients, rounds):
        assert run.append_event(event)
    run.write_config(default_config() | {"overrides": {"num-clients": clients}})
    return run


def measure(tab: Tab, run: RunFolder) -> str:
    """Return a row of the table: bytes of the log and the page, seconds to write and to open it."""
    started = process_time()
    path = write_report(run)
    written = process_time() - started
    opened = [tab.open(path) for _ in range(OPENINGS)]
    assert tab.complaints == [], tab.complaints
    size = path.stat().st_size / 1e3
    log = run.events_path.stat().st_size / 1e6
    return (
        f"| {run.path.name.replace('x', ' x ')} | {log:.1f} MB | {size:.0f} kB | {written:.1f} s "
        f"| {np.median(opened):.2f} s ({min(opened):.2f} to {max(opened):.2f}) |"
    )


def main() -> None:
    """Print the table; sizes may be named in the command."""
    print("| clients x rounds | log | report | processor time to write | opened in |")
    print("| --- | --- | --- | --- | --- |")
    # Chromium may still write to its profile when it is told to end.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        chromium(Path(name) / "profile") as tab,
    ):
        for size in sys.argv[1:] or SIZES:
            clients, rounds = map(int, size.split("x"))
            print(measure(tab, write_run(Path(name), clients, rounds)), flush=True)


if __name__ == "__main__":
    main()
