"""The command behind ``forager compare``."""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ....core.config import ConfigError, Scalar, default_config, read_config
from ....core.config.overrides import parse_overrides
from ....core.storage.files import write_atomically
from ....core.tasks import TaskError, load_task
from ....core.tasks.metrics import label
from ...flower.env import app_settings
from ..fingerprint import files_of, fingerprint
from ..measures import GOAL_NAMES
from ..records import SweepError
from .budget import CONTENT, Budget, BudgetError, parse_budget
from .candidates import ALL, CandidateError, check, parse_candidates
from .comparison import RUNNER, Comparison, compare
from .document import document
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
_SET_HERE = {  # by the comparison; what to use instead
    "strategy": "name the strategies before the options",
    "seed": "use --seeds",
    "num-server-rounds": "use --budget, such as --budget '60 rounds'",
    "output-dir": "use --out",
    **dict.fromkeys(("run-name", "resume-from"), "leave it out"),
}


@dataclass(frozen=True)
class Options:
    """What the user asks for, under the names of the command's options."""

    strategies: Sequence[str] = (ALL,)
    run_config: Sequence[str] = ()
    seeds: int = 5
    budget: str = "60 rounds"
    goal: str = "server"
    to_the_end: bool = False
    processes: int | None = None
    cluster: str | None = None  # address of a Ray cluster; RAY_ADDRESS by default
    out: Path | None = None
    json: bool = False  # print the document instead of words

    def command(self) -> str:
        """Return the command that repeats or continues the comparison."""
        words = [name for name in self.strategies if name != ALL]
        words += [word for text in self.run_config for word in ("-c", text)]
        for field in fields(self)[2:-1]:
            value, name = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                words += [name] if value is True else [name, str(value)]
        return " ".join(["forager compare", *map(_quoted, words)])


def _quoted(word: str) -> str:
    # Double quotes are easier to read around the single ones of a run config.
    readable = re.fullmatch(r"[^\"$`!\\]*[ '][^\"$`!\\]*", word)
    return f'"{word}"' if readable else shlex.quote(word)


def run_comparison(options: Options, *, runner: str = RUNNER) -> int:
    """Compare, print the verdict and write the page; 1 if a run failed."""
    try:
        comparison, folder = _compare(options, runner)
        _publish(comparison, folder, options)
    except (BudgetError, CandidateError, ConfigError, SweepError, TaskError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command continues from here", file=sys.stderr)
        return 130
    return 1 if comparison.failures else 0


def _publish(comparison: Comparison, folder: Path, options: Options) -> None:
    _say("drawing the page ...")
    found = document(comparison, options.command())
    page = folder / f"{page_name(comparison)}.html"
    found.page = str(page)
    write_atomically(page.with_suffix(".json"), found.json_text().encode() + b"\n")
    write_atomically(page, render(found).encode())
    if options.json:
        print(found.json_text())
        return
    print(f"{text_table(found)}\nJudged by {label(found.judged_by)} {GOAL_NAMES[found.goal]}:")
    print(*found.verdict, sep="\n")
    print(f"page: {page}")


def page_name(comparison: Comparison) -> str:
    """Name the page after what is compared, whatever the seeds and the budget are."""
    names = [candidate.name for candidate in comparison.candidates]
    shared = {k: v for k, v in comparison.common.items() if k not in (*COMMON, "evaluate-every")}
    settings = [dict(candidate.settings) for candidate in comparison.candidates]
    text = json.dumps([names, settings, shared, comparison.goal], sort_keys=True)
    readable = "-".join(names) if len(names) <= 3 else f"{len(names)}-strategies"
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", readable)[:60].strip("-")
    return f"compare-{readable}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _compare(options: Options, runner: str) -> tuple[Comparison, Path]:
    budget = parse_budget(options.budget)
    candidates = parse_candidates(options.strategies)
    own = {key: value for key, value in app_settings().items() if key not in _SET_HERE}
    common = _common(parse_overrides(options.run_config), budget, own)
    for name, value in (("seeds", options.seeds), ("processes", options.processes)):
        if value is not None and value < 1:
            raise CandidateError(f"{name} = {value}: must be 1 or more")
    if options.goal not in GOAL_NAMES:
        raise CandidateError(f"goal = {options.goal!r}: allowed are {', '.join(GOAL_NAMES)}")
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
    _say(f"reading the data of {config.task} ...")
    task = load_task(config.task_spec())
    metric = task.metrics[0]
    content = fingerprint(config.flat(), task, config.num_clients, folder / "fingerprints.json")
    names = [file.name for file in files_of(config.flat())]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    if names:
        _say(f"checked for changes: {', '.join(names[:3])}{more}")
    (other,) = GOAL_NAMES.keys() - {options.goal}
    ours, theirs = GOAL_NAMES[options.goal], GOAL_NAMES[other]
    _say(f"goal: {label(metric)} {ours} decides (--goal {other} judges {theirs})")
    comparison = compare(
        candidates,
        {**common, CONTENT: content} if content else common,
        budget,
        range(options.seeds),
        folder,
        processes=options.processes,
        halving=not options.to_the_end,
        goal=options.goal,
        metric=metric,
        runner=runner,
        cluster=options.cluster,
        say=_say,
    )
    return comparison, folder


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _common(user: dict[str, Scalar], budget: Budget, own: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return the keys that all runs share: ours, those of the app here, those of the user."""
    for key, how in _SET_HERE.items():
        if key in user:
            raise CandidateError(f"{key} = {user[key]!r}: a comparison sets this; {how}")
    common = dict(COMMON)
    if budget.kind == "rounds":
        common["evaluate-every"] = max(1, int(budget.amount) // MOST_EVALUATIONS)
    if budget.kind == "seconds":
        common["devices.slow"] = True  # or no time would pass
    common |= own | user
    if budget.kind == "seconds" and not common["devices.slow"]:
        raise CandidateError("devices.slow = False: then no simulated time ever passes")
    path = str(common.get("data.path", ""))
    if path:  # workers may not share this folder
        common["data.path"] = str(Path(path).resolve())
    return common


def _folder_name(common: dict[str, Scalar]) -> str:
    task = str(common.get("task") or default_config()["task"] or "digits")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", task).strip("-.") or "task"
