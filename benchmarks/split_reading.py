"""Whether Auxo splits planted groups by either reading of lemma 4.1.

``python -m forager.benchmarks.split_reading`` prints the table of ``docs/methods/auxo.md``: J of
eq. 1, a mean of squares, must fall to 1/sqrt(K) of itself, or its root must, and so J to 1/K.
"""

import json
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from ..selectors.cohorts.split import SplitRule
from ..tools.engine.local import run_local

CASES = (("label-permutation", 2), ("label-permutation", 4), ("rotation", 2), ("rotation", 4))
SEEDS = range(3)
SETTINGS: dict[str, Any] = {
    **{"strategy": "auxo", "auxo.first-clustering": 2, "auxo.first-split": 4, "auxo.alpha": 0.1},
    **{"num-clients": 20, "fraction-train": 1.0, "partition": "iid", "model": "mlp"},
    **{"num-server-rounds": 30, "evaluate-every": 30, "checkpoint.every": 0, "report": False},
}


def split(kind: str, groups: int, seed: int, exponent: float) -> tuple[int, float]:
    """Return how many cohorts there are in the end, and the least share of J that was left.

    The share is that of the first cohort.
    """

    def rule(**settings: Any) -> SplitRule:
        return SplitRule(**{**settings, "exponent": exponent})

    planted: dict[str, Any] = {"groups.kind": kind, "groups.count": groups, "seed": seed}
    place = "forager.strategies.cohorts.auxo.SplitRule"
    with TemporaryDirectory() as folder, patch(place, rule):
        result = run_local({**SETTINGS, **planted, "output-dir": folder})
        lines = (result.folder / "events.jsonl").read_text().splitlines()
    told = [event for event in map(json.loads, lines) if event["event"] == "cohorts"]
    left = [event["heterogeneity"].get("0") for event in told]
    return len(told[-1]["members"]), min(share for share in left if share is not None)


def main() -> None:
    """Print the table."""
    print("| groups | least J after / before | cohorts, J by sqrt(K) | cohorts, J by K |")
    print("|---|---|---|---|")
    for kind, groups in CASES:
        lax, strict = (list(map(partial(_of, kind, groups, e), SEEDS)) for e in (0.5, 1.0))
        shares = " ".join(f"{share:.2f}" for _, share in strict)
        counts = [" ".join(str(count) for count, _ in found) for found in (lax, strict)]
        print(f"| {groups}, {kind} | {shares} | {counts[0]} | {counts[1]} |", flush=True)


def _of(kind: str, groups: int, exponent: float, seed: int) -> tuple[int, float]:
    return split(kind, groups, seed, exponent)


if __name__ == "__main__":
    main()
