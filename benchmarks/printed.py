"""Tables that a benchmark prints, kept with the repository and put into pages.

``python -m forager.benchmarks.printed message-cost`` runs a benchmark and keeps its table in
``benchmarks/records/printed.jsonl``, with the command, the commit and the load of the machine;
``make results`` puts it between two marks of its page. Without a name, all are run.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..tools.experiments.provenance import ROOT, commit, versions
from ..tools.experiments.tables import Table

RECORDS = ROOT / "benchmarks" / "records" / "printed.jsonl"
COMMANDS = {
    "message-cost": "python -m forager.benchmarks.message_cost processes --repeats 3",
    "node-rounds": (
        "python -m forager.benchmarks.node_rounds fedavg gcfl ode auxo ios cosage forager"
    ),
    "load": "python -m forager.benchmarks.load --clients 50 200 --rounds 5",
    "compiled": "python -m forager.benchmarks.compiled",
    "silent-clients": "python -m forager.benchmarks.silent_clients",
    "report-size": "python -m forager.benchmarks.report_size 100x200 1000x500",
    "memory": "python -m forager.benchmarks.memory --replies 100",
    "sparse-uplink": "python -m forager.benchmarks.sparse_uplink",
    "downlink": "python -m forager.benchmarks.downlink",
    "buffered": "python -m forager.benchmarks.buffered",
    "selection-speed": "python -m forager.benchmarks.selection_speed",
}


@dataclass(frozen=True)
class Printed:
    """A table, and where it comes from."""

    name: str
    command: str
    date: str
    commit: str
    versions: Mapping[str, str]
    cores: int
    load: float  # processes that wanted a core when the run began, over the last minute
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table below what made it."""
        made = f"`{self.command}`, {self.date}, commit `{self.commit}`"
        where = f"load {self.load:g} on {self.cores} cores before it began"
        return f"{made}, {where}:\n\n{Table(self.rows).markdown()}"


def parse_table(text: str) -> list[list[str]]:
    r"""Return the rows of the only Markdown table in a text.

    >>> parse_table("floor: 1.2\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n")
    [['a', 'b'], ['1', '2']]
    """
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in rows if set("".join(row)) - set("-: ")]


def measure(name: str) -> Printed:
    """Run the benchmark of a table."""
    load = os.getloadavg()[0]
    words = [sys.executable, *shlex.split(COMMANDS[name])[1:]]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Printed(
        name=name,
        command=COMMANDS[name],
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        versions=versions(),
        cores=os.cpu_count() or 1,
        load=round(load, 1),
        rows=parse_table(done.stdout),
    )


def read_printed(path: Path = RECORDS) -> dict[str, Printed]:
    """Return the tables by name."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [Printed(**json.loads(line)) for line in lines]
    return {each.name: each for each in found}


def keep(table: Printed, path: Path = RECORDS) -> None:
    """Replace the table of this name, or add it."""
    tables = read_printed(path) | {table.name: table}
    path.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in tables.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks and keep their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *COMMANDS])
    for name in parser.parse_args(arguments).names or COMMANDS:
        table = measure(name)
        keep(table)
        print(table.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
