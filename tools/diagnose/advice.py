"""What to do about what was found: a config, what to expect of it, how to make sure; the page."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ...core.config import Scalar
from ...server_app.run_folder import RunFolder, RunFolderError
from ..flower.env import command_name
from ..flower.run import describes_the_situation
from ..report.formatting import natural_order, run_command
from ..report.html_page import page, sortable_table
from .evidence import RunEvidence
from .findings import Finding, findings

# What the records of other data sets are compared by: how much of each was found there
PROFILE = ("label skew", "quantity skew", "own models")
_NEEDS_MORE = ("label skew", "groups", "doubtful labels", "own models")
_COMMANDS = ("advice", "to settle it")  # lines that are commands
_ALIKE = 3  # data sets
_FAR = 2.0  # spreads of the records: further away, nothing is alike

Record = Mapping[str, Any]


def advice(found: Mapping[str, Finding], overrides: Mapping[str, Scalar]) -> dict[str, str]:
    """Return lines by name, given the keys that describe the federation among those set."""
    present = [name for name, finding in found.items() if finding.found]
    reasons = [name for name in _NEEDS_MORE if name in present]
    mine, other = ("forager", "fedavg") if reasons else ("fedavg", "forager")
    why = f"its parts act on {', '.join(reasons)}" if reasons else "nothing needs more than FedAvg"
    changes: dict[str, Scalar] = {}
    if "slow or away" in present:
        changes["round.over-commit"] = 0.2
        why += "; rounds do not wait for the slowest"
    if "drift" in present:
        why += "; data change: diagnose again before a model is used for long"
    same = {key: value for key, value in overrides.items() if describes_the_situation(key)}
    program = command_name()
    parts = [mine, *(f"{key}={value}" for key, value in changes.items())]
    rival = f'"{" ".join(parts)}"' if changes else mine
    compare = f"{program} compare {other} {rival}" + " --goal clients" * bool(reasons)
    return {
        "advice": run_command({**same, "strategy": mine, **changes}, f"{program} run"),
        "why": why,
        "expected": expected(found) if reasons else "not known: all records are of skewed data",
        "to settle it": run_command(same, compare),
    }


def expected(found: Mapping[str, Finding]) -> str:
    """Return what the united strategy gained on the data sets that look most alike."""
    values = {name: each.value for name, each in found.items() if each.value is not None}
    nearest = most_alike(values, alike_records())
    if not nearest:
        return "not known: no recorded data set is similar"
    mean, low, high = interval(nearest)
    names = ", ".join(record["name"] for record in nearest)
    return (
        f"{100 * mean:+.1f} points over FedAvg on clients' own data after 60 rounds "
        f"({100 * low:+.1f} to {100 * high:+.1f}), as on {names}, which are most similar"
    )


def interval(records: Sequence[Record]) -> tuple[float, float, float]:
    """Return the mean gain over all seeds of some data sets, and two deviations either side."""
    gains = np.concatenate([record["gains"] for record in records])
    mean, half = float(gains.mean()), 2 * float(gains.std(ddof=1))
    return mean, mean - half, mean + half


def most_alike(values: Mapping[str, float], records: Sequence[Record]) -> list[Record]:
    """Return the records nearest to a profile; none if all are far from it."""
    shared = [name for name in PROFILE if name in values]
    if not shared or not records:
        return []
    profiles = [values, *(record["profile"] for record in records)]
    table = np.array([[profile[name] for name in shared] for profile in profiles])
    skew = [place for place, name in enumerate(shared) if name == "label skew"]
    table[:, skew] = np.log(np.maximum(table[:, skew], 0.1))
    away = (table[1:] - table[0]) / np.maximum(table[1:].std(axis=0), 1e-9)
    distances = np.sqrt(np.mean(away**2, axis=1))
    order = np.argsort(distances, kind="stable")[:_ALIKE]
    return [records[place] for place in order] if distances[order[0]] <= _FAR else []


def alike_records() -> list[Record]:
    """Return the data sets of the records; ``python -m forager.benchmarks.alike`` writes them."""
    text = files(__package__).joinpath("alike.json").read_text(encoding="utf-8")
    found: list[Record] = json.loads(text)
    return found


_COLUMNS = {
    "quantity skew": "samples",
    "groups": "group",
    "doubtful labels": "share of labels in doubt",
    "drift": "data changed in round",
    "slow or away": "seconds",
    "own models": "gain of own model",
}


def diagnose(folder: RunFolder, target: float | None = None) -> tuple[dict[str, str], Path]:
    """Return the lines of a run's diagnosis by name, and where the page with them is."""
    seen = RunEvidence.of(folder.read_events())
    if not seen.rounds:
        raise RunFolderError(
            f"{folder.path}: this run cannot be diagnosed; it needs data-selector = 'examined', as "
            "forager diagnose sets it, and one finished round"
        )
    found = findings(seen, target)
    lines = {name: finding.text for name, finding in found.items()}
    lines |= advice(found, folder.read_config().get("overrides", {}))
    title = f"Diagnosis of {folder.path.name}"
    told = "".join(f"<p><b>{name}</b>: {_written(name, text)}</p>" for name, text in lines.items())
    body = f"<h1>{escape(title)}</h1>{told}"
    path = folder.write_text("diagnosis.html", page(title, body + _clients(found), []))
    return lines, path


def _written(name: str, text: str) -> str:
    """Return a line as HTML: commands as code."""
    return f"<code>{escape(text)}</code>" if name in _COMMANDS else escape(text)


def _clients(found: dict[str, Finding]) -> str:
    columns = {_COLUMNS[n]: f.clients for n, f in found.items() if n in _COLUMNS and f.clients}
    keys = sorted({key for own in columns.values() for key in own}, key=natural_order)
    rows = []
    for key in keys:
        values = [own.get(key) for own in columns.values()]
        cells = [("" if value is None else f"{value:.3g}", value) for value in values]
        rows.append(("", [(escape(key), key), *cells]))
    return f"<h2>Clients</h2>{sortable_table(['client', *columns], rows)}"
