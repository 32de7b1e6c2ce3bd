"""From a config to a stack of layers."""

from functools import partial
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from ..core.config.run_config import RunConfig
from ..core.learning.sample_values import valuation
from ..core.methods.coreset_plan import coreset_plan
from ..core.methods.registry import STREAM_RULES, resolve, stream_rule
from ..core.tasks import load_task
from ..selectors.client_selectors.base import ClientSelector
from .checks import check_linear_head, check_room
from .client_similarity import client_similarity
from .cohort_rules.base import CohortRule
from .cohorts import Cohorts
from .coresets import Coresets
from .fine_tune import FineTune
from .neighbours import Neighbours
from .privacy import CentralNoise, PrivacyLedger
from .quarantine import Quarantine
from .roster import Roster
from .scaffold import Scaffold
from .selection import Selection
from .signals import Signal, SupportSignal
from .streams import Streams
from .support_reader import SupportReader, parameter_shapes
from .survey import Survey


def _selector(config: RunConfig) -> ClientSelector:
    settings: dict[str, dict[str, Any]] = {
        "cosage": {"silent_ratio": config.cosage.silent_ratio},
        "power-of-choice": {"candidates": config.power_of_choice.candidates},
        "oort": {
            "exploration": config.oort.exploration,
            "floor": config.oort.least_exploration,
            "alpha": config.oort.slow_penalty,
            "blacklist_after": config.oort.blacklist_after,
        },
    }
    name = config.client_selector
    selector: ClientSelector = resolve("client-selector", name)(**settings.get(name, {}))
    return selector


def build_strategy(config: RunConfig, roster: Roster) -> Strategy:
    """Return the strategy that a config describes, innermost first.

    >>> from forager.strategies.layer import describe
    >>> from forager.core.config.run_config import read_config
    >>> config = read_config({"uplink": "top-k", "aggregator": "fedyogi"})
    >>> describe(build_strategy(config, Roster()))
    'SparseUplink(Quarantine(Selection(FlowerAggregator(FedYogi))))'
    """
    strategy = _with_whom(config, roster)
    strategy = Quarantine(
        strategy,
        roster,
        norm_factor=config.quarantine.norm_factor,
        count_factor=config.quarantine.count_factor,
        min_replies=config.round.min_replies,
    )
    if config.privacy == "local-dp":
        # Any two updates of a client are at most two clips apart.
        multiplier = config.dp.noise_multiplier / 2
        strategy = PrivacyLedger(strategy, roster, multiplier, config.dp.delta)
    if config.uplink == "top-k":
        strategy = resolve("uplink", "top-k")(
            strategy, roster, density=config.top_k.density, values=config.top_k.values
        )
    return strategy


def single_model_stack(config: RunConfig, roster: Roster) -> Strategy:
    """Return what trains one model: who is chosen, on what they train, how it is aggregated."""
    everyone = config.client_selector == "all"
    aggregator = resolve("aggregator", config.aggregator)(config)
    aggregator.equal_weights = config.weighting == "uniform"
    strategy: Strategy = Selection(
        _on_chosen_data(aggregator, config, roster),
        _selector(config),
        roster,
        count=0 if everyone else config.clients_per_round,
        fraction=1.0 if everyone else config.fraction_train,
        fraction_evaluate=config.fraction_evaluate,
        over_commit=config.round.over_commit,
        seed=config.seed,
        identify_timeout=min(60.0, config.round.deadline),
        survey=Survey(roster, bounded=config.summary.form == "unit", timeout=config.round.deadline),
        summary_mode=config.summary.mode,
        ask_at_most=config.summary.ask_at_most,
    )
    if config.data_selector in STREAM_RULES:
        strategy = _streams(strategy, config, roster)
    return Scaffold(strategy, roster) if config.objective == "scaffold" else strategy


def _streams(strategy: Strategy, config: RunConfig, roster: Roster) -> Streams:
    values = config.data_selector == "ode"
    check_room(config)
    if stream_rule(config.data_selector).needs != "nothing":
        check_linear_head(config, f"data-selector = {config.data_selector!r}")
    task = load_task(config.task_spec())
    return Streams(
        strategy,
        roster,
        task.num_classes,
        valuation(task.build_model(), config).size if values else 0,
        plans=values,
        estimator=config.ode.estimator,
        clients_per_label=config.ode.clients_per_label,
        labels_per_client=config.ode.labels_per_client,
        quantities=config.ode.quantities,
        cover=config.ode.cover,
        coordinated=config.ode.coordinate,
        drift=config.ode.replan,
        every_round=config.stream.ingest == "every-round",
        timeout=config.round.deadline,
    )


def _on_chosen_data(aggregator: Strategy, config: RunConfig, roster: Roster) -> Strategy:
    strategy = FineTune(aggregator, config) if config.fine_tune.epochs else aggregator
    if config.privacy == "central-dp":
        dp, rng = config.dp, np.random.default_rng([config.seed, 5])
        strategy = CentralNoise(
            strategy, clip=dp.clip, multiplier=dp.noise_multiplier, delta=dp.delta, rng=rng
        )
    if config.objective == "moon":
        check_linear_head(config, "objective = 'moon'")
    if config.data_selector == "skyline" or coreset_plan(config) is not None:
        return Coresets.of_run(strategy, roster, config)
    return strategy


def _with_whom(config: RunConfig, roster: Roster) -> Strategy:
    if config.cohorts == "none":
        return single_model_stack(config, roster)
    if config.cohorts == "neighbours":
        inner = single_model_stack(config, roster)
        timeout = config.round.deadline
        ios = config.ios
        return Neighbours(
            inner,
            roster,
            client_similarity(config),
            count=ios.neighbours,
            first=ios.first_round,
            every=ios.every,
            timeout=timeout,
        )
    return _cohorts(config, roster)


def _cohorts(config: RunConfig, roster: Roster) -> Cohorts:
    everyone = config.client_selector == "all"
    rule: CohortRule = resolve("cohorts", config.cohorts)(config)
    dimension, seed = config.cohort.dimension, config.seed
    if config.cohorts == "auxo" and config.similarity == "index-overlap":
        reader = SupportReader(parameter_shapes(config))
        signal: Signal = SupportSignal(reader, dimension, seed)
    else:
        signal = Signal(dimension, seed)
    return Cohorts(
        partial(single_model_stack, config, roster),
        rule,
        signal,
        roster,
        count=0 if everyone else config.clients_per_round,
        fraction=1.0 if everyone else config.fraction_train,
        timeout=config.round.deadline,
    )
