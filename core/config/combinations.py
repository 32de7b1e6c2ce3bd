"""Settings that do not go together or that nothing uses, by what methods declare."""

from collections.abc import Callable, Mapping

from ..methods.aggregators import Aggregation
from ..methods.base import Method
from ..methods.catalogue import all_settings, chosen, methods
from ..methods.cohort import CohortSettings
from ..methods.privacy import Dp
from ..tasks.spec import APP, FEWEST_TO_SCALE, NONE, STANDARD
from .run_config import ConfigError, RunConfig, Scalar
from .sections import AUTO

Found = list[Method]

# With a buffer (FedBuff): those that have been tested, and why the others cannot.
_WITH_BUFFER = {
    "cohorts": (
        ("none", "split-test", "conflict-test", "auxo", "similarity", "ifca", "cfl"),
        "it compares updates of one model by all clients, some of which still train another",
    ),
    "objective": (
        ("sgd", "prox", "gce", "sce"),
        "its correction refers to the model of the last round",
    ),
    "privacy": (("none", "local-dp"), "it accounts for rounds that each draw their clients anew"),
}


def impossible(config: RunConfig) -> list[str]:
    """Return what no single key gets wrong but several do together."""
    active = chosen(config.axes())
    kinds = dict.fromkeys(kind for method in active for kind in method.settings)
    return [
        *_of_participants(config, active),
        *(problem for kind in kinds for problem in config[kind].problems()),
        *_of_axes(active),
        *(
            line
            for method in active
            for need in method.needs_in(config)
            for line in _NEEDS[need](method, config, active)
        ),
        *_of_fine_tuning(config),
        *_of_scaling(config, active),
        *_of_buffer(config, participants(config)),
    ]


def check_simulated(config: RunConfig) -> None:
    """Refuse what only real nodes have, and what so few cannot do."""
    if config.clients.tags:
        raise ConfigError(
            f"run config: clients.tags = {config.clients.tags!r}: simulated clients have no tags; "
            "name them in clients.allowed, such as '0,1,2'"
        )
    if config.data.scale == STANDARD and config.num_clients < FEWEST_TO_SCALE:
        raise ConfigError(
            f"run config: data.scale = {STANDARD!r} with num-clients = {config.num_clients}: at "
            f"least {FEWEST_TO_SCALE} must report, or one could mislead all; use {NONE!r}"
        )


def unwise(config: RunConfig) -> list[str]:
    """Return what works together, but badly."""
    axes = config.axes()
    return [
        f"{method} with {axis} = {name!r}: {why}"
        for method in chosen(axes)
        for (axis, name), why in method.suffers_in(config).items()
        if axes[axis] == name
    ]


def unused_keys(config: RunConfig, given: Mapping[str, Scalar]) -> list[str]:
    """Return the keys that were set to something else than their default, and nothing reads."""
    defaults = RunConfig().flat()
    used = {key for method in chosen(config.axes()) for key in method.keys_read()}
    known = {key for section in all_settings() for key in section.own_keys()}
    return [k for k, v in given.items() if k in known - used and v != defaults[k]]


def participants(config: RunConfig) -> int:
    """Return how many of ``num-clients`` are asked per round."""
    count, share = config.participation()
    return max(1, min(count or round(share * config.num_clients), config.num_clients))


def _of_participants(config: RunConfig, active: Found) -> list[str]:
    problems, asked = [], participants(config)
    if config.client_selector != "all" and not config.clients_per_round + config.fraction_train:
        problems.append("fraction-train = 0.0: nobody would train; set it or clients-per-round")
    for method in active:
        least = method.least_clients(config)
        if asked < least:
            problems.append(
                f"{method}: needs {least} clients per round with these settings, {asked} are asked "
                "(clients-per-round, or fraction-train of num-clients)"
            )
    if config.round.min_replies > asked:
        problems.append(
            f"round.min-replies = {config.round.min_replies}: only {asked} are asked per round"
        )
    return problems


def _of_axes(active: Found) -> list[str]:
    by_axis = {method.axis: method for method in active}
    return [
        f"{method}: needs {axis} = {' or '.join(allowed)}, not {by_axis[axis].name!r}"
        for method in active
        for axis, allowed in method.requires.items()
        if by_axis[axis].name not in allowed
    ]


def _server_data(method: Method, config: RunConfig, active: Found) -> list[str]:
    if config.data.validation_share > 0:
        return []
    return [f"{method}: needs samples on the server; set data.validation-share above 0"]


def _plain_sgd(method: Method, config: RunConfig, active: Found) -> list[str]:
    if config.optimiser.name == "sgd":
        return []
    return [f"{method}: needs optimiser.name = 'sgd', not {config.optimiser.name!r}"]


def _own_training(method: Method, config: RunConfig, active: Found) -> list[str]:
    if not config.task.startswith(APP):
        return []
    return [f"{method}: task = {config.task!r} is another app, which trains with its own code"]


def _noise_for_a_budget(method: Method, config: RunConfig, active: Found) -> list[str]:
    allowed = ", ".join(m.name for m in _on(method.axis) if m is not method)
    return [f"dp.budget = {config[Dp].budget}: needs noise; use {method.axis} = {allowed}"]


def _of_fine_tuning(config: RunConfig) -> list[str]:
    if not config.fine_tune.epochs or config.data.validation_share > 0:
        return []
    what = f"fine-tune.epochs = {config.fine_tune.epochs}"
    return [f"{what}: needs samples on the server; set data.validation-share above 0"]


def _of_scaling(config: RunConfig, active: Found) -> list[str]:
    """Return who promises that clients send, or are sent, nothing without noise."""
    if config.data.scale == NONE:
        return []
    promises = {"nothing sent but a model", "nothing released but models"}
    return [
        f"{method}: data.scale = {STANDARD!r} has clients send means and spreads of their inputs "
        "without noise; scale the data on each client and use data.scale = 'none'"
        for method in active
        if promises & set(method.needs_in(config))
    ]


def _of_buffer(config: RunConfig, asked: int) -> list[str]:
    """Return what stands against a buffer or late updates, if there are to be any."""
    buffer, late = config[Aggregation].buffer, config[Aggregation].late
    if not buffer:
        return _of_earlier_rounds("aggregation.late = true", config) if late else []
    what, problems = f"aggregation.buffer = {buffer}", []
    if late:
        problems.append(f"{what}: no update is late, so aggregation.late = true has no effect")
    if config.round.over_commit:
        told = f"round.over-commit = {config.round.over_commit}"
        problems.append(f"{what}: {told} also avoids waiting; set only one of the two")
    if config.round.deadline == AUTO:
        told = "round.deadline = 'auto' learns from rounds that wait for all their clients"
        problems.append(f"{what}: {told}; give it in seconds")
    if buffer > asked:
        problems.append(f"{what}: at most {asked}, the clients that train at a time")
    return problems + _of_earlier_rounds(what, config)


def _of_earlier_rounds(what: str, config: RunConfig) -> list[str]:
    """Return what cannot take updates of models of earlier rounds."""
    axes, problems = config.axes(), []
    if config[CohortSettings].share not in ("auto", "none"):
        told = f"cohort.share = {config[CohortSettings].share!r}"
        problems.append(f"{what}: {told} needs the cohorts' rounds to end together; use 'none'")
    for axis, (names, why) in _WITH_BUFFER.items():
        if axes[axis] not in names:
            told = f"{axis} = {axes[axis]!r} cannot use updates of earlier rounds: {why}"
            problems.append(f"{what}: {told}; use {', '.join(names)}")
    return problems


def _offered(need: str, why: str) -> Callable[[Method, RunConfig, Found], list[str]]:
    """Return a check that another chosen method offers what one needs."""

    def check(method: Method, config: RunConfig, active: Found) -> list[str]:
        if any(need in other.offers for other in active):
            return []
        axis = next(a for a in config.axes() if any(need in m.offers for m in _on(a)))
        allowed = ", ".join(m.name for m in _on(axis) if need in m.offers)
        return [f"{method}: {why}; use {axis} = {allowed}, not {config.axes()[axis]!r}"]

    return check


def _only_models_sent(method: Method, config: RunConfig, active: Found) -> list[str]:
    """Return what clients would send besides their noisy model."""
    return [
        f"{method}: {other} has clients send more than a noisy model "
        f"({'; '.join(sent)}); allowed are "
        + ", ".join(m.name for m in _on(other.axis) if not m.unprotected(config))
        for other in active
        if (sent := other.unprotected(config))
    ]


def _only_models_released(method: Method, config: RunConfig, active: Found) -> list[str]:
    """Return what clients would be sent that the server's noise does not cover."""
    return [
        f"{method}: {other} releases more than models with noise ({', '.join(other.releases)}); "
        "allowed are " + ", ".join(m.name for m in _on(other.axis) if not m.releases)
        for other in active
        if other.releases
    ]


def _on(axis: str) -> Found:
    return list(methods(axis).values())


_NEEDS: dict[str, Callable[[Method, RunConfig, Found], list[str]]] = {
    "server data": _server_data,
    "linear head": lambda *_: [],  # ``strategies.build`` looks once the model is built
    "classes": lambda *_: [],
    "output bias": lambda *_: [],
    "plain SGD": _plain_sgd,
    "one model": _offered("one model", "a client keeps one state, not one per model"),
    "a similarity": _offered("a similarity", "set a similarity"),
    "mean aggregator": _offered(
        "mean aggregator", "the influence of one client on other aggregators is not known"
    ),
    "our training": _own_training,
    "noise for a budget": _noise_for_a_budget,
    "nothing sent but a model": _only_models_sent,
    "nothing released but models": _only_models_released,
}
