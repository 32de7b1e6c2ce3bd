"""From a config to a stack of layers."""

from functools import partial
from typing import Any

from flwr.serverapp.strategy import Strategy

from client_selectors.base import ClientSelector
from server_app.config import RunConfig
from strategies.cohort_rules.base import CohortRule
from strategies.cohorts import Cohorts
from strategies.quarantine import Quarantine
from strategies.registry import resolve
from strategies.roster import Roster
from strategies.scaffold import Scaffold
from strategies.selection import Selection
from strategies.signals import Signal
from strategies.survey import Survey


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

    >>> from strategies.layer import describe
    >>> from server_app.config import read_config
    >>> config = read_config({"uplink": "top-k", "aggregator": "fedyogi"})
    >>> describe(build_strategy(config, Roster()))
    'SparseUplink(Quarantine(Selection(StockAggregator(FedYogi))))'
    """
    strategy: Strategy = (
        trained_together(config, roster) if config.cohorts == "none" else _cohorts(config, roster)
    )
    strategy = Quarantine(
        strategy,
        roster,
        norm_factor=config.quarantine.norm_factor,
        min_replies=config.round.min_replies,
    )
    if config.uplink == "top-k":
        strategy = resolve("uplink", "top-k")(
            strategy, roster, density=config.top_k.density, values=config.top_k.values
        )
    return strategy


def trained_together(config: RunConfig, roster: Roster) -> Strategy:
    """Return what trains one model: who is chosen, on what they train, how it is aggregated."""
    everyone = config.client_selector == "all"
    aggregator = resolve("aggregator", config.aggregator)(config)
    aggregator.equal_weights = config.weighting == "uniform"
    strategy: Strategy = aggregator
    strategy = Selection(
        strategy,
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
    return Scaffold(strategy, roster) if config.objective == "scaffold" else strategy


def _cohorts(config: RunConfig, roster: Roster) -> Cohorts:
    everyone = config.client_selector == "all"
    rule: CohortRule = resolve("cohorts", config.cohorts)(config)
    signal = Signal(config.cohort.dimension, config.seed, lengths=config.cohorts == "cfl")
    return Cohorts(
        partial(trained_together, config, roster),
        rule,
        signal,
        roster,
        count=0 if everyone else config.clients_per_round,
        fraction=1.0 if everyone else config.fraction_train,
        timeout=config.round.deadline,
    )
