"""The command behind ``forager compare``."""

import json
import re
import shlex
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from ....core.config import ConfigError, Scalar, default_config, read_config
from ....core.config.overrides import parse_overrides
from ....core.storage.files import write_atomically
from ....core.tasks import TaskError, load_task
from ..records import SweepError
from .budget import Budget, BudgetError, parse_budget
from .candidates import CandidateError, check, parse_candidates
from .comparison import RUNNER, Comparison, compare
from .document import document
from .measures import GOAL_NAMES
from .page import render
from .table import text_table

# What a comparison sets unless the user does: clients hold out some of their data, to see how the
# worst of them fare; each run has one core; the page of each would take longer than many runs.
COMMON: dict[str, Scalar] = {
    "fraction-evaluate": 1.0,
    "data.client-test-share": 0.2,
    "checkpoint.every": 10,
    "checkpoint.keep": 1,
    "local.threads": 1,
    "report": False,
}
MOST_EVALUATIONS = 100
_SET_HERE = ("strategy", "seed", "num-server-rounds", "output-dir", "run-name", "resume-from")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m forager.tools.experiments.compare",
        description="Which strategy fits my data? Runs them on the local engine and answers.",
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "-c",
        "--run-config",
        action="append",
        default=[],
        metavar="'KEY=VALUE ...'",
        help="task, model, number of clients, ...: the keys of a run",
    )
    parser.add_argument(
        "--strategies",
        nargs="+",
        default=["all"],
        metavar="NAME",
        help="presets, 'all', or your own as \"name: client-selector='aoi' ...\"",
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of each: seeds 0, 1, 2, ...")
    parser.add_argument(
        "--budget",
        default="60 rounds",
        help="what a run may spend: rounds, bytes (20MB) or simulated time (10min)",
    )
    parser.add_argument(
        "--goal",
        choices=list(GOAL_NAMES),
        default="server",
        help="whose data decide: the server's test data, or the clients' own",
    )
    parser.add_argument(
        "--to-the-end",
        action="store_true",
        help="give every strategy the whole budget, drop none early",
    )
    parser.add_argument("--processes", type=int, help="runs side by side; None: all cores")
    parser.add_argument(
        "--cluster", help="run on this Ray cluster; None: RAY_ADDRESS, if it is set"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for results; by default named after the task"
    )
    return parser


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Compare, print the verdict and write the page; 1 if a run failed."""
    options = _parser().parse_args(arguments)
    try:
        comparison, folder = _compare(options, runner)
        _publish(comparison, folder, command(arguments))
    except (BudgetError, CandidateError, ConfigError, SweepError, TaskError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command continues from here", file=sys.stderr)
        return 130
    return 1 if comparison.failures else 0


def _publish(comparison: Comparison, folder: Path, how: str) -> None:
    """Write what was found as JSON and as a page, and print it."""
    found = document(comparison, how)
    write_atomically(folder / "compare.json", json.dumps(found, indent=1).encode() + b"\n")
    write_atomically(folder / "compare.html", render(found).encode())
    print(text_table(found), *found["verdict"], sep="\n")
    print(f"page: {folder / 'compare.html'}")


def command(arguments: Sequence[str] | None) -> str:
    """Return the command that repeats or continues a comparison.

    >>> print(command(["-c", "task='npz' seed=1", "--strategies", "fedavg", "--seeds", "3"]))
    forager compare fedavg -c "task='npz' seed=1" --seeds 3
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--strategies" in given:
        first = given.index("--strategies")
        last = next((i for i in range(first + 1, len(given)) if given[i][:1] == "-"), len(given))
        names = [name for name in given[first + 1 : last] if name != "all"]
        given = [*names, *given[:first], *given[last:]]
    # Double quotes are easier to read around the single ones of a run config.
    readable = re.compile(r"[^\"$`!\\]*[ '][^\"$`!\\]*")
    words = [f'"{w}"' if readable.fullmatch(w) else shlex.quote(w) for w in given]
    return " ".join(["forager compare", *words])


def _compare(options: Namespace, runner: str) -> tuple[Comparison, Path]:
    budget = parse_budget(options.budget)
    candidates = parse_candidates(options.strategies)
    common = _common(parse_overrides(options.run_config), budget)
    for name, value in (("seeds", options.seeds), ("processes", options.processes)):
        if value is not None and value < 1:
            raise CandidateError(f"{name} = {value}: must be 1 or more")
    check(candidates, common)
    if options.goal == "clients" and not (
        common["fraction-evaluate"] and common["data.client-test-share"]
    ):
        raise CandidateError(
            "goal = 'clients': clients need test data; set data.client-test-share above 0"
        )
    config = read_config({**default_config(), **common})
    folder = options.out or Path("comparisons") / _folder_name(common)
    folder.mkdir(parents=True, exist_ok=True)
    comparison = compare(
        candidates,
        common,
        budget,
        range(options.seeds),
        folder,
        processes=options.processes,
        halving=not options.to_the_end,
        goal=options.goal,
        metric=load_task(config.task_spec()).metrics[0],
        runner=runner,
        cluster=options.cluster,
    )
    return comparison, folder


def _common(user: dict[str, Scalar], budget: Budget) -> dict[str, Scalar]:
    """Return the keys that all runs share."""
    for key in _SET_HERE:
        if key in user:
            raise CandidateError(f"{key} = {user[key]!r}: a comparison sets this itself")
    common = dict(COMMON)
    if budget.kind == "rounds":
        common["evaluate-every"] = max(1, int(budget.amount) // MOST_EVALUATIONS)
    if budget.kind == "seconds":
        common["devices.slow"] = True  # or no time would pass
    common |= user
    if budget.kind == "seconds" and not common["devices.slow"]:
        raise CandidateError("devices.slow = False: then no simulated time ever passes")
    path = str(common.get("data.path", ""))
    if path:  # workers may not share this folder
        common["data.path"] = str(Path(path).resolve())
    return common


def _folder_name(common: dict[str, Scalar]) -> str:
    """Name the results after the task.

    >>> _folder_name({"task": "mine:load"}), _folder_name({})
    ('mine-load', 'digits')
    """
    task = str(common.get("task") or default_config()["task"] or "digits")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", task).strip("-.") or "task"
