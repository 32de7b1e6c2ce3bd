"""Runners for the sweep's tests, which worker processes load by name."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

Scalar = int | float | bool | str


@dataclass
class FakeResult:
    reason: str
    rounds: list[dict[str, object]]


def curve(seed: int, offset: float, rounds: int) -> list[dict[str, object]]:
    return [
        {
            "round": number,
            "accuracy": 0.1 * number + 0.01 * seed + offset,
            "bytes-down": 100,
            "bytes-up": 10,
            "bytes-select": 1,
        }
        for number in range(1, rounds + 1)
    ]


def steady(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Give a made-up curve, and leave a file behind in the output folder."""
    assert quiet
    folder = Path(str(overrides["output-dir"]))
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    rounds = int(overrides.get("num-server-rounds", 3))
    rows = curve(int(overrides["seed"]), float(overrides.get("offset", 0.0)), rounds)
    rows[-1] |= {"pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}
    return FakeResult("completed", rows)


def counted(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Note every call in the file that the environment names."""
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        calls.write(f"{overrides['strategy']} {overrides['seed']}\n")
    return steady(overrides, quiet=quiet)


def meeting(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """End only when two runs are under way at the same time."""
    place = Path(os.environ["FAKE_MEETING"])
    (place / f"seed-{overrides['seed']}").touch()
    deadline = time.monotonic() + 60
    while len(list(place.iterdir())) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError("the other run did not come")
        time.sleep(0.01)
    return steady(overrides, quiet=quiet)


def moody(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Fail in the way that the config names."""
    mood = overrides["mood"]
    if mood == "raises":
        raise RuntimeError("no clients left")
    if mood == "exits":
        raise SystemExit(3)
    if mood == "dies":
        os.write(2, b"out of memory\n")
        os._exit(7)
    if mood == "aborts":
        return FakeResult("too-few-replies", [])
    if mood == "unstorable":
        return FakeResult("completed", [{"round": 1, "accuracy": object()}])
    if mood == "raises-once" and not Path(os.environ["FAKE_MARKER"]).exists():
        Path(os.environ["FAKE_MARKER"]).touch()
        raise RuntimeError("first time")
    return steady(overrides, quiet=quiet)


def endless(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Seed 0 ends at once; the others leave their process id and never end."""
    if overrides["seed"] != 0:
        (Path(os.environ["FAKE_PIDS"]) / str(os.getpid())).touch()
        time.sleep(600)
    return steady(overrides, quiet=quiet)
