"""Settings that are fine by themselves but not together."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run_config import RunConfig

_MATCHING = ("gcfl", "gradmatch", "nearest")  # data selectors that match a gradient
# By axis, what needs nothing of clients that depends on their data but the model they trained. The
# others ask for a loss, a similarity, an update, labels or important parameters as they are.
_ONLY_A_MODEL = {
    "client-selector": ("random", "all", "round-robin", "aoi"),
    "data-selector": (
        *("full", "random", "facility-location", "crust", "skyline", "agreement"),
        *_MATCHING,
    ),
    "cohorts": ("none", "auxo", "cfl", "neighbours"),
    "similarity": ("none", "cosine", "euclidean"),
    "objective": ("sgd", "prox", "moon"),
    "aggregator": (
        *("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"),
        *("median", "trimmed-mean", "krum", "multi-krum", "bulyan"),
    ),
}


def method_problems(config: "RunConfig") -> list[str]:
    """Return what is wrong with the settings of data selectors, objectives and fine-tuning."""
    return [
        *_of_coresets(config),
        *_of_server_data(config),
        *_of_scaffold(config),
        *_of_cohorts(config),
        *_of_signatures(config),
        *_of_privacy(config),
    ]


def _of_coresets(config: "RunConfig") -> list[str]:
    problems, coreset = [], config.coreset
    if coreset.budget > 1 and coreset.budget != int(coreset.budget):
        problems.append(
            f"coreset.budget = {coreset.budget}: above 1 it is a whole number of samples"
        )
    if config.data_selector not in _MATCHING:
        problems += [
            f"{key} = {value!r}: only {', '.join(_MATCHING)} match a gradient, not data-selector = "
            f"{config.data_selector!r}"
            for key, value in (("coreset.rule", coreset.rule), ("coreset.target", coreset.target))
            if value != "auto"
        ]
    if config.data_selector == "agreement" and not coreset.per_class:
        problems.append(
            "coreset.per-class = False: data-selector = 'agreement' compares the classes' gradients"
        )
    return problems


def _of_server_data(config: "RunConfig") -> list[str]:
    if config.data.validation_share > 0:
        return []
    needs = [f"fine-tune.epochs = {config.fine_tune.epochs}"] if config.fine_tune.epochs else []
    own = "own" if config.data_selector == "gradmatch" else "server"
    target = own if config.coreset.target == "auto" else config.coreset.target
    if config.data_selector in (*_MATCHING, "agreement") and target == "server":
        needs.append(f"data-selector = {config.data_selector!r}")
    return [f"{what}: needs samples on the server, data.validation-share = 0.0" for what in needs]


def _of_scaffold(config: "RunConfig") -> list[str]:
    if config.objective != "scaffold" or config.cohorts == "none":
        return []
    models = f"the models of cohorts = {config.cohorts!r}"
    return [
        f"objective = 'scaffold': a client has one control variate, not one for each of {models}"
    ]


def _of_cohorts(config: "RunConfig") -> list[str]:
    compares = config.cohorts in ("similarity", "neighbours")
    if compares and config.similarity == "none":
        allowed = "index-overlap, cosine, euclidean or oracle"
        return [f"cohorts = {config.cohorts!r}: needs similarity = {allowed}"]
    if config.similarity == "none" or compares:
        return []
    if config.cohorts == "auxo" and config.similarity == "index-overlap":
        return []
    allowed = "allowed there are none, and index-overlap for auxo"
    unused = f"not used by cohorts = {config.cohorts!r}"
    return [f"similarity = {config.similarity!r}: {unused}; {allowed}"]


def _of_signatures(config: "RunConfig") -> list[str]:
    ios, problems = config.ios, []
    if not ios.signatures:
        return []
    if config.cohorts not in ("similarity", "neighbours") or config.similarity != "index-overlap":
        problems.append(
            "ios.signatures = True: needs cohorts = similarity or neighbours, and similarity = "
            "index-overlap"
        )
    if ios.hashes % ios.bands:
        problems.append(f"ios.bands = {ios.bands}: must divide ios.hashes = {ios.hashes}")
    return problems


def _of_privacy(config: "RunConfig") -> list[str]:
    """Return what clients would send besides their noisy model, or cannot be noisy at all."""
    problems = []
    if config.privacy == "local-dp":
        axes = config.axes()
        problems += [
            f"privacy = 'local-dp': {axis} = {axes[axis]!r} has clients send more than a noisy "
            f"model; allowed are {', '.join(allowed)}"
            for axis, allowed in _ONLY_A_MODEL.items()
            if axes[axis] not in allowed
        ]
        if config.cohorts == "auxo" and config.cohort.ask_newcomers:
            problems.append(
                f"privacy = 'local-dp': cohort.ask-newcomers = {config.cohort.ask_newcomers} has "
                "clients send more than a noisy model; allowed is 0"
            )
    robust = ("median", "trimmed-mean", "krum", "multi-krum", "bulyan", "qfedavg")
    if config.privacy == "central-dp" and config.aggregator in robust:
        problems.append(
            f"privacy = 'central-dp': what one client changes in aggregator = "
            f"{config.aggregator!r} is not known; allowed are the means: fedavg, fedavgm, fedadam, "
            "fedyogi, fedadagrad"
        )
    return problems
