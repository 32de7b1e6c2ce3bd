"""Measured ratios that are kept, so that a slow creep does not go unseen.

``benchmarks/records/speed.jsonl`` has one line per recorded run: date, commit, versions, load of
the machine, and every ratio; ``methods.jsonl`` likewise has those of rounds of every preset to
FedAvg's. A new run is compared with the last that a quiet machine made, and the tables of
``docs/results/speed.md`` are made from the files.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..tools.experiments.provenance import ROOT, commit, versions
from .peer_records import peers_table, read_peers

RECORDS = ROOT / "benchmarks" / "records" / "speed.jsonl"
PAGE = ROOT / "docs" / "results" / "speed.md"
BEGIN, END = "<!-- from benchmarks/records/speed.jsonl -->", "<!-- end -->"
METHOD_RECORDS = RECORDS.with_name("methods.jsonl")
OWN_RECORDS = RECORDS.with_name("own-arithmetic.jsonl")
BEGIN_METHODS = "<!-- from benchmarks/records/methods.jsonl -->"
BEGIN_PEERS = "<!-- from benchmarks/records/peers.jsonl -->"
CREEP = 0.10  # worse than the last record by more than this share is worth a warning
_SHOWN = 5  # records in the table of the page

# What each number is to be at most
TARGETS = {
    "digits, stacked / bare loop": 0.04,
    "digits, one by one / bare loop": 1.0,
    "CNN, as it chooses / bare loop": 0.45,
    "CNN, one core busy / bare loop": 0.6,
    "CNN, one by one / bare loop": 1.1,
    "1,000,000 clients, start (s)": 30.0,
    "1,000,000 clients, memory (GB)": 2.0,
    "1,000,000 clients, round (s)": 0.2,
    "1,000,000 clients, checkpoint (s)": 0.5,
}
# The same for rounds of presets, as multiples of FedAvg's: with 1,000 clients, and with 30
_ROUNDS = {
    **dict.fromkeys(("cosage", "cosage-feedback"), (12.0, 2.0)),
    **dict.fromkeys(("gcfl", "trusted"), (6.0, 1.5)),
    **dict.fromkeys(("ode", "ode-balanced"), (10.0, 2.0)),
    **dict.fromkeys(("auxo", "split-test"), (6.0, 1.5)),
    **dict.fromkeys(("ios", "ios-centred"), (25.0, 2.5)),
    "scaffold": (3.0, 1.3),
}
METHOD_TARGETS = {
    **{f"{name}, 1,000 clients": most for name, (most, _) in _ROUNDS.items()},
    **{f"{name}, 30 clients": most for name, (_, most) in _ROUNDS.items()},
    "moon, 30 clients": 3.0,
}


@dataclass(frozen=True)
class SpeedRecord:
    """One run of the benchmark."""

    date: str
    commit: str
    versions: Mapping[str, str]
    cores: int
    load: float  # processes that wanted a core when the run began, over the last minute
    ratios: Mapping[str, float]


def new_record(ratios: Mapping[str, float], load: float) -> SpeedRecord:
    """Return a record of what was measured now, by the code as it is."""
    return SpeedRecord(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        versions=versions(),
        cores=os.cpu_count() or 1,
        load=round(load, 2),
        ratios={name: float(f"{value:.3g}") for name, value in ratios.items()},
    )


def read_records(path: Path = RECORDS) -> list[SpeedRecord]:
    """Return all records, the oldest first."""
    if not path.exists():
        return []
    return [SpeedRecord(**json.loads(line)) for line in path.read_text().splitlines() if line]


def append_record(record: SpeedRecord, path: Path = RECORDS) -> None:
    """Add a record to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def is_quiet(load: float, cores: int) -> bool:
    """Tell whether a machine had little else to do."""
    return load <= 0.25 * cores


def last_ratios(records: Sequence[SpeedRecord]) -> Mapping[str, float]:
    """Return the ratios of the last record that a quiet machine made; none if there is none."""
    quiet = [record for record in records if is_quiet(record.load, record.cores)]
    return quiet[-1].ratios if quiet else {}


def judged(ratios: Mapping[str, float], last: Mapping[str, float]) -> list[str]:
    """Return a line per number: its target, whether it is missed, and how it was the last time.

    >>> print(*judged({"digits, stacked / bare loop": 0.06}, {"digits, stacked / bare loop": 0.05}))
      digits, stacked / bare loop              0.06   target 0.04    MISSED   +20 % SLOWER
    """
    lines = []
    for name, value in ratios.items():
        target = TARGETS[name]
        line = f"  {name:36} {value:8.3g}   target {target:<6g}"
        line += "  MISSED" if value > target else "        "
        if name in last:
            change = value / last[name] - 1
            line += f"   {change:+.0%}".replace("%", " %")
            line += " SLOWER" if change > CREEP else ""
        lines.append(line.rstrip())
    return lines


def verdict(
    ratios: Mapping[str, float],
    last: Mapping[str, float],
    targets: Mapping[str, float] = TARGETS,
) -> list[str]:
    """Return what is missed, and what has become slower than the last record by more than 10 %."""
    aimed = [name for name in ratios if name in targets]
    missed = [name for name in aimed if ratios[name] > targets[name]]
    slower = [n for n, v in ratios.items() if n in last and v > (1 + CREEP) * last[n]]
    said = [f"missed {len(missed)} of {len(aimed)} targets: {'; '.join(missed) or 'none'}"]
    if slower:
        said.append(f"WARNING: slower than the last record by more than 10 %: {'; '.join(slower)}")
    return said


def page_tables(records: Sequence[SpeedRecord], targets: Mapping[str, float] = TARGETS) -> str:
    """Return the newest records as a table for the page, the newest on the left."""
    shown = list(records)[: -_SHOWN - 1 : -1]
    if not shown:
        return "No run is recorded yet."
    heads = [f"{r.date}, `{r.commit}`" for r in shown]
    lines = [f"| | target | {' | '.join(heads)} |", f"| --- | --- |{' --- |' * len(shown)}"]
    for name in dict.fromkeys([*targets, *shown[0].ratios]):
        target = targets.get(name)
        cells = [_cell(r.ratios.get(name), target) for r in shown]
        aim = "" if target is None else f"{target:g}"
        lines.append(f"| {name} | {aim} | {' | '.join(cells)} |")
    loads = " | ".join(f"{r.load:g} on {r.cores} cores" for r in shown)
    lines.append(f"| load of the machine before the run | | {loads} |")
    newest = ", ".join(f"{name} {number}" for name, number in shown[0].versions.items())
    return "\n".join([*lines, "", f"Bold: the target is met. Versions of the newest: {newest}."])


def _cell(value: float | None, target: float | None) -> str:
    if value is None:
        return ""
    return f"**{value:g}**" if target is not None and value <= target else f"{value:g}"


def write_page(records: Sequence[SpeedRecord], page: Path = PAGE) -> None:
    """Put the tables into the page, between their marks."""
    page.write_text(page_text(records, page.read_text()))


def page_text(records: Sequence[SpeedRecord], text: str) -> str:
    """Return the text of the page with these tables, those of methods and other frameworks."""
    text = _filled(text, BEGIN, page_tables(records))
    methods = page_tables(read_records(METHOD_RECORDS), METHOD_TARGETS)
    text = _filled(text, BEGIN_METHODS, methods)
    return _filled(text, BEGIN_PEERS, peers_table(read_peers()))


def _filled(text: str, begin: str, table: str) -> str:
    before, found, rest = text.partition(begin)
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n\n{table}\n\n{END}{after}" if found else text
