"""A runner for the comparison's tests, which worker processes load by name."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEVELS = {"fedavg": 0.5, "fedprox": 0.52, "fedyogi": 0.7, "scaffold": 0.3, "cosage": 0.4}


@dataclass
class FakeResult:
    reason: str
    rounds: list[dict[str, Any]]


def rows(level: float, rounds: int, seed: int = 0, cost: float = 100.0) -> list[dict[str, Any]]:
    """A curve that is at its level from round 1 on, and what it costs."""
    return [
        {
            "round": number,
            "accuracy": level + 0.001 * ((7 * seed + number) % 5) if number else 0.1,
            "clients-accuracy-worst-10": level / 2,
            "bytes": cost * number,
            "client-seconds": 0.01 * number,
            "simulated-seconds": 0.5 * number,
            "evenness": 0.9,
            "bytes-selecting": 10 * number,
            "seconds-selecting": 0.001 * number,
        }
        for number in range(rounds + 1)
    ]


def run(overrides: dict[str, Any], *, quiet: bool = True) -> FakeResult:
    """Note the call in the file that the environment names; a level below zero fails."""
    strategy, amount = overrides["strategy"], int(overrides["limit.amount"])
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        calls.write(f"{strategy} {overrides['seed']} {amount}\n")
    if strategy == os.environ.get("FAKE_BROKEN"):
        raise RuntimeError("broken")
    return FakeResult("completed", rows(LEVELS[strategy], amount, overrides["seed"]))
