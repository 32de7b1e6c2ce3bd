"""``forager compare``: which strategy fits my data."""

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
