"""``forager arena``: what a rule of who trains is worth."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import app, errors_in_words, examples


@app.command(
    epilog=examples(
        ("forager arena my_rule.py", "a rule of your own against all others"),
        ("forager arena my_rule.py --rules random,aoi --seeds 10", "against two, with more seeds"),
    )
)
def arena(
    rule: Annotated[
        Path | None, typer.Argument(help="A file with one subclass of ClientSelector.")
    ] = None,
    rules: Annotated[str, typer.Option(help="Rules to compare, with commas; all if empty.")] = "",
    seeds: Annotated[int, typer.Option(help="Runs of each: seeds 0, 1, 2, ...", min=2)] = 5,
    out: Annotated[Path, typer.Option(help="Runs that are there are not done again.")] = Path(
        "arena.jsonl"
    ),
    processes: Annotated[int | None, typer.Option(help="Runs side by side.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers, not tables.")] = False,
) -> None:
    """Compare rules of who trains with lots: at equal rounds, bytes and simulated seconds.

    All of them take ten minutes on two cores. With --out=benchmarks/records/arena.jsonl, of a
    checkout, only your own rule runs.
    """
    from ..experiments import arena as fight
    from ..experiments.compare.budget import COLUMNS
    from ..experiments.records import SweepError
    from ..experiments.sweep import sweep

    with errors_in_words():
        known = fight.rules()
        names = list(dict.fromkeys([fight.BASELINE, *filter(None, rules.split(","))]))
        for name in names if rules else []:
            if name not in known:
                raise SweepError(f"--rules = {name!r} is not known; there are {known}")
        if rule is not None:
            fight.own_rule(rule)  # before anything starts
        names = names if rules else known
        todo = fight.cells(names, rule)
        results = sweep(
            "arena", todo, range(seeds), path=out, processes=processes, runner=fight.RUNNER
        )
    shown = [*names[1:], *([rule.stem] if rule else [])]
    found = fight.standings(results, shown)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for cost in COLUMNS:
            print(f"\nPoints of accuracy to lots, at equal {cost}:\n")
            print(fight.table(found, cost).text())
    raise typer.Exit(1 if results.failures else 0)
