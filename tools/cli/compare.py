"""``forager compare``: configs side by side; ``forager arena``: what a rule is worth."""

import json
import sys
from pathlib import Path

from typer import Argument, Exit, Option

from .options import RunConfigOption, command


@command(
    ("forager compare", "all strategies on digits"),
    ("forager compare fedavg cosage -c \"task='npz' data.path='mine.npz'\"", "two, on mine"),
    ("forager compare \"fedavg uplink='top-k'\" cosage", "a preset with one part changed"),
)
def compare(
    strategies: list[str] | None = Argument(
        None,
        metavar="[NAME]...",
        help="Presets, presets with changes as \"fedavg uplink='top-k'\", or your own as "
        "\"name: client-selector='aoi' ...\"; all by default.",
    ),
    run_config: RunConfigOption = None,
    seeds: int = Option(5, help="Runs of each: seeds 0, 1, 2, ..."),
    budget: str = Option(
        "60 rounds", help="What a run may spend: rounds, bytes (20MB) or simulated time (10min)."
    ),
    goal: str = Option(
        "server", help="Whose accuracy decides: server (its test data) or clients (their own)."
    ),
    to_the_end: bool = Option(
        False, "--to-the-end", help="Give every strategy the whole budget, drop none early."
    ),
    processes: int | None = Option(None, help="Runs side by side; one per core by default."),
    cluster: str | None = Option(None, help="Run on this Ray cluster; RAY_ADDRESS by default."),
    out: Path | None = Option(None, help="Folder for results; comparisons/<task> by default."),
    as_json: bool = Option(False, "--json", help="Print what was found as JSON, for scripts."),
    schema: bool = Option(
        False, "--schema", help="Print the JSON schema of --json, and run nothing."
    ),
) -> None:
    """Run strategies under equal conditions, and say in words which one to use.

    Differences are paired over seeds and have 95 % intervals. Hopeless ones are stopped early.
    Exit code 0: all went well; 1: a run failed; 2: something cannot be as asked; 130: Ctrl-C.
    """
    print("loading PyTorch ...", file=sys.stderr, flush=True)
    if schema:
        from ..experiments.compare.schema import Document

        print(json.dumps(Document.model_json_schema(), indent=1))
        return
    from ..experiments.compare.command import Options, run_comparison
    from ..trust import find_own_modules

    find_own_modules()
    settings = [text for text in run_config or [] if text.strip()]
    options = Options(
        *(strategies or ["all"], settings, seeds, budget, goal, to_the_end, processes, cluster),
        *(out, as_json),
    )
    raise Exit(run_comparison(options))


@command(
    ("forager arena my_rule.py", "a rule of your own against all others"),
    ("forager arena my_rule.py --rules random,aoi --seeds 10", "against two, with more seeds"),
)
def arena(
    rule: Path | None = Argument(None, help="A file with one rule of your own."),
    rules: str = Option("", help="Rules to compare, with commas; all if empty."),
    seeds: int = Option(5, help="Runs of each: seeds 0, 1, 2, ...", min=2),
    out: Path = Option(Path("arena.jsonl"), help="Runs that are there are not done again."),
    processes: int | None = Option(None, help="Runs side by side."),
    as_json: bool = Option(False, "--json", help="Print numbers, not tables."),
    schema: bool = Option(False, "--schema", help="Print the schema of --json, and run nothing."),
) -> None:
    """Compare a rule with all of its kind: at equal rounds, bytes and simulated seconds.

    The file defines one subclass of ClientSelector (who trains; compared if there is no file),
    ClientHook (on which samples), StreamSelector (what a stream keeps) or CohortRule (with whom).
    With --out=benchmarks/records/arena.jsonl, of a checkout, only your own rule runs.
    """
    from ..experiments import arena as fight
    from ..experiments.compare.budget import COLUMNS
    from ..experiments.compare.schema import STANDINGS
    from ..experiments.records import SweepError
    from ..experiments.sweep import sweep

    if schema:
        print(json.dumps(STANDINGS.json_schema(), indent=1))
        return
    kind = fight.own_rule(rule)[0] if rule else fight.KINDS[fight.FIRST]
    known = kind.rules()
    named = list(dict.fromkeys([kind.baseline, *filter(None, rules.split(","))]))
    names = named if rules else known
    for name in names:
        if name not in known:
            raise SweepError(f"--rules = {name!r} is not known; there are {known}")
    todo = fight.cells(kind, names, rule)
    results = sweep("arena", todo, range(seeds), path=out, processes=processes, runner=fight.RUNNER)
    shown = [*names[1:], *([rule.stem] if rule else [])]
    found = fight.standings(results, kind, shown)
    if as_json:
        rows = STANDINGS.validate_python(found)
        print(STANDINGS.dump_json(rows, indent=1, by_alias=True).decode())
    else:
        for cost in COLUMNS:
            print(f"\nPoints of accuracy to {kind.baseline}, at equal {cost}:\n")
            print(fight.table(found, cost, list(kind.data)).text())
    raise Exit(1 if results.failures else 0)
