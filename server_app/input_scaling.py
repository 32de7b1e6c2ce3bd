"""Before round 1 of a run with ``data.scale``: mean and spread of the inputs of all clients.

Nobody sees a single sample. Each client reports how many samples it holds and the mean and spread
of each feature (of each channel, for images). Together they give those of all data, as if it were
in one place. Nobody can ruin them alone: a client whose numbers are far from everybody else's is
set aside, what is left of a deviation is bounded, and no client counts for many others.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ..core.config import ConfigError, RunConfig
from ..core.log.events import InputsScaled
from ..core.tasks import Task
from ..core.tasks.scaling import Scaling, check_inputs
from ..core.tasks.spec import FEWEST_TO_SCALE, FOUND, NONE
from ..core.tasks.splits import generator
from ..core.wire.keys import ASK_MOMENTS, CONFIG
from ..core.wire.replies import Row
from ..core.wire.schemas import MomentsTold
from ..strategies.federation.federation import Federation
from .loop import Loop
from .post import Post
from .retries import RunFailed

_log = logging.getLogger("forager")
_PAUSE = 2.0  # seconds before clients are asked again
_SETTLE = 1.0  # seconds in which no client appears
_HOPELESS = 3  # times in a row that every client asked answered with an error
_MOST_FEATURES = 50_000  # of which clients report mean and spread in one message
_MOST_ASKED = 1000  # clients are enough to know the scale of a feature
_FAR = 100.0  # times the usual deviation: another unit, or a lie
_BOUND = 10.0  # times the usual deviation that a client may count for

Numbers = NDArray[np.float64]


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
    """Return the numbers that a flat config scales inputs by; empty if it has none."""
    scale = str(config.get("data.scale", NONE))
    return scale if scale.startswith(FOUND) else ""


def find_scaling(loop: Loop, config: RunConfig, width: int) -> str:
    """Ask clients until enough answer, and return the setting; RunFailed if too few ever do."""
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
            problem += f"; client {loop.federation.roster.called(client)}: {reason[:300]}"
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


@dataclass(frozen=True)
class Moments:
    """What one client reports of its inputs."""

    count: float
    mean: Numbers
    spread: Numbers


def ask_for_scaling(
    federation: Federation, grid: Grid, *, width: int, seed: int, weight_factor: float
) -> tuple[Scaling | None, int]:
    """Ask connected clients; return the scaling, None if too few reports fit, and how many do.

    A client counts for at most ``weight_factor`` times the usual number of samples; 0 for no limit.
    """
    nodes = federation.nodes(grid)
    if len(nodes) > _MOST_ASKED:
        drawn = generator(seed, "scaling").choice(len(nodes), _MOST_ASKED, replace=False)
        nodes = [nodes[place] for place in np.sort(drawn)]
    answers = federation.ask(grid, 0, ASK_MOMENTS, nodes, {CONFIG: {}})
    for key in federation.keys(nodes):  # who cannot say this may train all the same
        federation.heard(key, 0, answered=True)
    told = federation.readable(0, answers, lambda row: read_moments(row, width))
    if len(told) < FEWEST_TO_SCALE:
        return None, len(told)
    kept, implausible = plausible(told)
    for client, reason in implausible.items():
        federation.set_aside(0, client, reason)
    if not kept:
        return None, 0
    scaling = Scaling.of_moments(*combined(list(kept.values()), weight_factor))
    federation.note(InputsScaled(round=0, clients=len(kept), features=width))
    return scaling, len(kept)


def read_moments(row: Row, width: int) -> Moments:
    """Return what a client reports; :class:`BadReply` if it cannot be true of any data."""
    told = MomentsTold.read(row.metrics, "moments of the inputs", mean=width, spread=width)
    return Moments(told.count, np.asarray(told.mean), np.asarray(told.spread))


def plausible(told: Mapping[int, Moments]) -> tuple[dict[int, Moments], dict[int, str]]:
    """Return the reports that fit together, and those far from all others with the reason."""
    middle, usual = _usual(list(told.values()))
    kept, implausible = {}, {}
    for client, report in told.items():
        far = _deviation(report, middle) > _FAR * usual
        if far.any():
            feature = int(np.argmax(far))
            implausible[client] = (
                f"inputs unlike those of other clients: feature {feature} has mean "
                f"{report.mean[feature]:.3g} and spread {report.spread[feature]:.3g}, where "
                f"{middle[feature]:.3g} and {usual[feature]:.3g} are usual. Is it in another unit?"
            )
        else:
            kept[client] = report
    return kept, implausible


def combined(reports: list[Moments], weight_factor: float = 0.0) -> tuple[Numbers, Numbers]:
    """Return mean and spread of all data together."""
    middle, usual = _usual(reports)
    most = _BOUND * usual
    counts = np.array([report.count for report in reports])
    if weight_factor:
        counts = np.minimum(counts, weight_factor * np.median(counts))
    weights = (counts / counts.sum())[:, None]
    apart = np.clip([report.mean - middle for report in reports], -most, most)
    spreads = np.minimum([report.spread for report in reports], most)
    shift = (weights * apart).sum(axis=0)
    squares = (weights * (spreads**2 + (apart - shift) ** 2)).sum(axis=0)
    return middle + shift, np.sqrt(squares)


def _usual(reports: list[Moments]) -> tuple[Numbers, Numbers]:
    """Return the median of the means, and how far samples usually are from it where any is seen."""
    middle = np.median([report.mean for report in reports], axis=0)
    deviations = np.array([_deviation(report, middle) for report in reports])
    seen = np.where(deviations > 0, deviations, np.nan)
    usual = np.full(len(middle), np.inf)
    known = (deviations > 0).any(axis=0)
    usual[known] = np.nanmedian(seen[:, known], axis=0)
    return middle, usual


def _deviation(report: Moments, middle: Numbers) -> Numbers:
    return np.hypot(report.spread, report.mean - middle)
