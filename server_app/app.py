"""The ServerApp: config, task, strategy, loop, artifacts."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from secrets import token_hex
from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from ..core.config import ConfigError, RunConfig, default_config, read_config
from ..core.config.combinations import check_simulated, unused_keys, unwise
from ..core.config.reading import fill_axes, old_names
from ..core.config.sections import AUTO
from ..core.learning.evaluation import evaluate, try_out
from ..core.learning.model_arrays import chosen_device, frozen_arrays, frozen_digest, read_arrays
from ..core.learning.train_settings import check_optimiser
from ..core.log.events import Event, JudgedBy, RunStarted
from ..core.methods.aggregators import Aggregation
from ..core.methods.base import load
from ..core.methods.catalogue import AXES
from ..core.methods.diagnose import Diagnosis
from ..core.tasks import Task, load_task
from ..core.tasks.errors import advice
from ..core.tasks.metrics import Metric, check_metrics
from ..core.tasks.spec import APP, STANDARD
from ..core.wire.arrays import from_record
from ..core.wire.flower_private import is_remote, is_simulation
from ..core.wire.versions import read_tags
from ..strategies.build import build_strategy
from ..strategies.federation.federation import Federation
from ..strategies.federation.grids import simulates
from ..strategies.federation.releases import Releases
from ..strategies.library import for_clients
from .callbacks.artifacts import Artifacts
from .callbacks.base import Callback, Make, OwnCallbacks, load_callbacks
from .callbacks.best_model import BestModel
from .callbacks.checkpoint import Checkpoints, load_checkpoint, load_earlier
from .callbacks.standard import ClassesOfClients, EarlyStopCallback, Progress, SpendingLimit
from .constant_baseline import baseline, note_data
from .input_scaling import check_scale, find_scaling, known_scale
from .loop import Evaluate, Loop
from .memory import check_memory
from .parallel_pull import SideBySide
from .post import Post
from .resume import (
    RUNS_ON,
    check_same_place,
    check_same_run,
    first_arrays,
    is_model,
    place_of,
    restore,
)
from .retries import LoopPlan
from .run_folder import RunFolder

_log = logging.getLogger("forager")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one federated training, as Flower starts it."""
    configure_logging()
    try:
        folder, reason = run(grid, context.run_config)
    except ImportError as error:
        raise RuntimeError(advice(error) or str(error)) from error
    _log.info("run %s\n%s", reason, load("tools.report:summary_table")(folder))


def run(grid: Grid, run_config: dict[str, Any]) -> tuple[RunFolder, str]:
    """Run one federated training on a grid; return what it left behind and how it ended."""
    folder, loop = build_loop(grid, run_config)
    return folder, loop.run()


def build_loop(grid: Grid, run_config: dict[str, Any]) -> tuple[RunFolder, Loop]:
    """Return a run that is ready to start, and its folder; what can be wrong is found here."""
    config = read_config(run_config)
    if is_simulation(grid):
        check_simulated(config)
    own_callbacks = load_callbacks(config.callbacks)
    task, model = _checked_task(config)
    check_memory(config, sum(array.nbytes for array in read_arrays(model).values()), grid)
    federation = _federation(config, task.metrics, run_config)
    federation.simulated = simulates(grid)
    if federation.simulated:  # on a busy machine it may take minutes to start its clients
        federation.identify_timeout = config.round.longest
    build_strategy(config, federation)  # whatever is wrong with it, before there is a folder
    place, arrays = place_of(grid), first_arrays(config.resume_from, model)
    folder, state = _new_or_resumed(config, place)
    set_and_where = {RUNS_ON: place, "overrides": _to_repeat(run_config)}
    if state is not None and known_scale(state["config"]):
        # What the run found before its first round stays, whoever is connected now.
        config = read_config({**run_config, "data.scale": known_scale(state["config"])})
    strategy = build_strategy(config, federation)
    federation.scale = known_scale(config.flat())
    folder.take_lease()
    federation.run = _identity(folder, state)
    federation.journal = _journal(folder)
    federation.releases = Releases(folder.releases_path)
    federation.folder = folder.path
    plan = _plan(config, frozen_digest(model))

    def scale_inputs(loop: Loop) -> None:
        """Go on with a config in which the scale of the inputs is known."""
        federation.scale = find_scaling(loop, config, task.input_shape[0])
        scaled = read_config({**run_config, "data.scale": federation.scale})
        loop.strategy = build_strategy(scaled, federation)
        loop.evaluate = _evaluator(scaled, model)
        loop.plan.config = scaled.flat()
        folder.write_config(scaled.flat() | set_and_where)

    loop = Loop(
        strategy,
        _post(grid, federation, config),
        arrays,
        plan,
        evaluate=_evaluator(config, model),
        callbacks=[
            ClassesOfClients(grid, task),
            *_callbacks(
                config, task.metrics[0], folder, own_callbacks, lambda: frozen_arrays(model)
            ),
        ],
        earlier=lambda server_round: load_earlier(folder.checkpoints, server_round),
        prepare=scale_inputs if config.data.scale == STANDARD else None,
    )
    if state is not None:
        restore(loop, state, config.resume_from)
        folder.truncate_after(loop.round)
    folder.write_config(config.flat() | set_and_where)
    _warn(config, run_config)
    _announce(loop, task, resumed=state is not None)
    clients = config.num_clients * federation.simulated
    for line in note_data(federation, task, clients, resumed=state is not None):
        _warn_once(f"data: {line}")
    return folder, loop


def _checked_task(config: RunConfig) -> tuple[Task, Any]:
    """Return the task and its model, once both have been tried out."""
    task = load_task(config.task_spec())
    check_metrics(task.metrics)
    _check_target(config.early_stop.target, task.metrics[0])
    check_optimiser(config.optimiser.name)
    model = task.build_model().to(chosen_device(config.device))
    try_out(task, model)
    check_scale(config, task)
    return task, model


def _federation(
    config: RunConfig, metrics: Sequence[Metric], run_config: dict[str, Any]
) -> Federation:
    foreign = config.task.startswith(APP)  # clients of another app
    return Federation(
        route="train" if foreign else "query",
        settings=for_clients(run_config) if foreign else "",
        deadline=min(config.round.question_deadline, config.round.longest),
        identify_timeout=min(60.0, config.round.longest),
        allowed=config.clients.names(),
        tags=read_tags(config.clients.tags),
        metrics=metrics,
        keep_models=config.downlink == "changes",
    )


def _plan(config: RunConfig, frozen: str) -> LoopPlan:
    return LoopPlan(
        num_rounds=config.num_server_rounds,
        evaluate_every=config.evaluate_every,
        min_replies=config.round.min_replies,
        give_up_after=config.round.give_up_after,
        late_counts=config[Aggregation].late,
        title=run_title(config),
        config=config.flat(),
        frozen=frozen,
    )


def _warn(config: RunConfig, run_config: dict[str, Any]) -> None:
    """Say what has another name now, what was set in vain, and what is unwise."""
    for line in old_names(run_config):
        _warn_once(line)
    unused = unused_keys(config, run_config)
    if unused:
        _warn_once(f"set, but not used by this run: {', '.join(unused)}")
    for caution in unwise(config):
        _warn_once(caution)


def _announce(loop: Loop, task: Task, *, resumed: bool) -> None:
    """Write down what begins, and what always the same answer would reach."""
    judged_by = [
        JudgedBy(name=m.name, higher_is_better=m.higher_is_better, share=m.share)
        for m in task.metrics
    ]
    loop.federation.note(
        RunStarted(
            strategy=loop.title,
            layers=loop.strategy.describe(),
            config=loop.plan.config,
            metrics=judged_by,
        )
    )
    least = None if resumed else baseline(task)
    if least is not None:
        loop.federation.note(least)


def _check_target(target: float, metric: Metric) -> None:
    if metric.share and not 0 <= target <= 1:
        raise ConfigError(
            f"early-stop.target = {target!r} is not allowed: use a number in [0, 1], "
            f"since {metric.name} is a share"
        )


def _post(grid: Grid, federation: Federation, config: RunConfig) -> Post:
    if is_remote(grid):
        grid = SideBySide(grid)
    return Post(
        grid,
        federation,
        deadline=config.round.longest,
        learns_deadline=config.round.deadline == AUTO,
        buffer=config[Aggregation].buffer,
    )


def _to_repeat(run_config: dict[str, Any]) -> dict[str, Any]:
    """Return what must be set to run the same again, in a folder of its own."""
    changed = {key: value for key, value in run_config.items() if default_config()[key] != value}
    if not is_model(changed.get("resume-from", "")):
        changed.pop("resume-from", None)
    return {key: changed[key] for key in changed if key != "run-name"}


def _new_or_resumed(config: RunConfig, place: str) -> tuple[RunFolder, dict[str, Any] | None]:
    if not config.resume_from or is_model(config.resume_from):
        return RunFolder.create(config.output_dir, config.run_name), None
    path, state = load_checkpoint(config.resume_from)
    check_same_run(state["config"], config)
    folder = RunFolder.open(path)
    check_same_place(folder, place)
    return folder, state


def _identity(folder: RunFolder, state: dict[str, Any] | None) -> str:
    """Return what clients know a run by: two runs may have one name, in two folders or in turn."""
    name = folder.path.resolve().name
    return f"{name}-{token_hex(4)}" if state is None else str(state.get("run", name))


def _evaluator(config: RunConfig, model: Any) -> Evaluate:
    task = load_task(config.task_spec())
    test = task.server_data().test

    def on_test_set(arrays: ArrayRecord) -> dict[str, float]:
        return evaluate(model, from_record(arrays), test, task.problem, task.metrics)

    return on_test_set


def _callbacks(
    config: RunConfig,
    metric: Metric,
    folder: RunFolder,
    own: dict[str, Make],
    frozen: Callable[[], dict[str, Any]],
) -> list[Callback]:
    stop = config.early_stop
    best = BestModel(
        folder,
        every=config.checkpoint.every,
        metric=metric,
        on_clients=config.cohorts != "none" and config.fraction_evaluate > 0,
        frozen=frozen,
    )
    examined, others = config.data_selector == "examined", OwnCallbacks(own, folder)
    every, keep = config.checkpoint.every, config.checkpoint.keep
    return [
        EarlyStopCallback(stop.patience, stop.target, metric),
        Progress(),
        best,
        *([SpendingLimit(config[Diagnosis].bytes, config[Diagnosis].seconds)] if examined else []),
        others,
        Checkpoints(folder.checkpoints, every, keep, may_write=folder.check_lease),
        Artifacts(folder, report=config.report, frozen=frozen),
        others.at_the_end(),
    ]


def _journal(folder: RunFolder) -> Callable[[Event], None]:
    """Return what writes events to the run folder, each with the seconds since the start."""
    started = time.monotonic()

    def write(event: Event) -> None:
        seconds = round(time.monotonic() - started, 6)
        folder.append_event({**event.to_dict(), "time": seconds})

    return write


@lru_cache(maxsize=100)
def _warn_once(text: str) -> None:
    """Warn, but not again for each run of a sweep."""
    _log.warning(text)


def configure_logging(level: int = logging.INFO) -> None:
    """Show this project's log, short and without Flower's line for every exchange."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    _log.setLevel(level)
    if not _log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        _log.addHandler(handler)
        _log.propagate = False


def run_title(config: RunConfig) -> str:
    """Name the preset, what differs from it, and the task."""
    preset, flat = fill_axes(config.strategy, {}), config.flat()
    other = [f"{axis} {flat[axis]}" for axis in sorted(AXES) if flat[axis] != preset[axis]]
    changed = f" with {', '.join(other)}" if other else ""
    return f"{config.strategy}{changed} on {config.task}"
