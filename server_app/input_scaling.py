"""Before round 1 of a run with ``data.scale``: find out what to scale by."""

import logging
import time
from collections.abc import Mapping

from ..core.config import ConfigError, RunConfig
from ..core.tasks import Task
from ..core.tasks.scaling import check_inputs
from ..core.tasks.spec import FEWEST_TO_SCALE, FOUND, NONE
from ..strategies.federation.input_scaling import ask_for_scaling
from .loop import Loop
from .post import Post
from .retries import RunFailed

_log = logging.getLogger("forager")
_PAUSE = 2.0  # seconds before clients are asked again
_SETTLE = 1.0  # seconds in which no client appears
_HOPELESS = 3  # times in a row that every client asked answered with an error
_MOST_FEATURES = 50_000  # of which clients report mean and spread in one message


def check_scale(config: RunConfig, task: Task) -> None:
    """Refuse to scale inputs that cannot be."""
    if config.data.scale == NONE:
        return
    inputs, _ = next(iter(task.unscaled().server_data().test.batches(1)))
    width = check_inputs(inputs).shape[1]
    if width > _MOST_FEATURES:
        raise ConfigError(
            f"data.scale: inputs have {width:,} features, at most {_MOST_FEATURES:,} can be "
            "scaled; use data.scale = 'none'"
        )
    if task.scaling is not None and len(task.scaling.mean) != width:
        raise ConfigError(
            f"data.scale = '{FOUND}...': made for {len(task.scaling.mean)} features, and inputs "
            f"have {width}; use data.scale = 'standard'"
        )


def known_scale(config: Mapping[str, object]) -> str:
    """Return the numbers that a flat config scales inputs by; empty if it has none.

    >>> known_scale({"data.scale": "standard"})
    ''
    """
    scale = str(config.get("data.scale", NONE))
    return scale if scale.startswith(FOUND) else ""


def find_scaling(loop: Loop, config: RunConfig, width: int) -> str:
    """Ask clients until enough have answered; return the setting that says it in numbers.

    RunFailed if too few answer for as long as the run waits for anything.
    """
    started, hopeless, least = time.monotonic(), 0, config.round.min_replies
    _wait_for_clients(loop.grid)
    while True:
        scaling, count = ask_for_scaling(
            loop.federation,
            loop.grid,
            width=width,
            seed=config.seed,
            weight_factor=config.quarantine.weight_factor,
        )
        if scaling is not None and count >= least:
            _log.info("inputs are scaled by means and spreads that %d clients reported", count)
            return scaling.text()
        last, waited = loop.grid.last, time.monotonic() - started
        failed = {} if last is None else last.failed
        hopeless = hopeless + 1 if last is not None and last.errors == last.sent else 0
        needed = max(least, FEWEST_TO_SCALE)
        problem = f"data.scale: {count} clients reported mean and spread, {needed} are needed"
        if failed:
            client, reason = next(iter(failed.items()))
            problem += f"; client {client}: {reason[:300]}"
        elif loop.federation.last_refusal:
            problem += f"; {loop.federation.last_refusal}"
        if hopeless >= _HOPELESS or waited >= config.round.give_up_after:
            raise RunFailed(f"{problem}. With data.scale = 'none' nobody is asked")
        _log.warning("%s; asking again", problem)
        time.sleep(min(_PAUSE, config.round.give_up_after))


def _wait_for_clients(grid: Post) -> None:
    """Wait until no more clients appear: Flower's simulation starts the ServerApp before them."""
    if hasattr(grid.grid, "num_partitions"):  # the local engine has all of them at once
        return
    before = -1
    while before < (now := len(list(grid.get_node_ids()))):
        before = now
        time.sleep(_SETTLE)
