"""The data sets of the records as a diagnosis sees them, with what the united strategy gained.

``python -m forager.benchmarks.alike`` examines each data set of the study ``forager-clients`` and
writes ``tools/diagnose/alike.json``, by which ``forager diagnose`` says what to expect. ``--check``
says instead how often what it expects holds for a data set that is left out.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.storage.files import replacing
from ..server_app.run_folder import RunFolder
from ..tools.cli.diagnose import examined
from ..tools.diagnose.advice import PROFILE, alike_records, interval, most_alike
from ..tools.diagnose.evidence import RunEvidence
from ..tools.diagnose.findings import findings
from ..tools.experiments.provenance import ROOT
from .studies.forager import clients
from .studies.no_harm import CLIENTS, DATA, setting_of
from .studies.runs import run_study
from .sweeps.measures import final

FILE = ROOT / "tools" / "diagnose" / "alike.json"
SEEDS = (100, 101)
ROUNDS = 12


def record_of(name: str) -> dict[str, Any]:
    """Return what a diagnosis finds of a data set, and the gains that are on record."""
    profiles = []
    keys = {key: value for key, value in CLIENTS.items() if key != "study.runner"}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            own = examined({**keys, **setting_of(name)}, ROUNDS)
            result = run_study({**own, "evaluate-every": 1, "seed": seed, "output-dir": folder})
            seen = RunEvidence.of(RunFolder.open(result.folder).read_events())
        found = findings(seen)
        profiles.append([found[part].value for part in PROFILE])
    means = np.mean(np.array(profiles, dtype=np.float64), axis=0)
    profile = {part: round(float(value), 4) for part, value in zip(PROFILE, means, strict=True)}
    return {"name": name, "profile": profile, "gains": gains_of(name)}


def gains_of(name: str) -> list[float]:
    """Return what the united strategy gained over FedAvg with each seed, from the records."""
    results, measure = clients().results, final("clients-accuracy-mean")
    before = results.values(f"{name}: fedavg", measure)
    after = results.values(f"{name}: forager", measure)
    return [round(after[seed] - before[seed], 4) for seed in sorted(before.keys() & after.keys())]


def check(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float, float]]:
    """Return for each data set its mean gain, and the interval expected by the others."""
    told = []
    for record in records:
        others = [other for other in records if other is not record]
        near = most_alike(record["profile"], others)
        if near:
            _, low, high = interval(near)
            told.append((record["name"], float(np.mean(record["gains"])), low, high))
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        for name, gain, low, high in check(alike_records()):
            held = "" if low <= gain <= high else "  outside"
            print(f"{name:20} {100 * gain:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}){held}")
        return 0
    records = []
    for name in DATA:
        records.append(record_of(name))
        print(records[-1], flush=True)
    _write(FILE, records)
    return 0


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with replacing(path) as file:
        file.write((json.dumps(records, indent=1) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
